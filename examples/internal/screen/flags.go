package screen

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// NewFlags returns the flag set of a program. Its -help begins with the purpose of the program.
func NewFlags(program, purpose string, stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "%s\nUsage: go run ./examples/%s [flags]\n\n", purpose, program)
		flags.PrintDefaults()
	}
	return flags
}

// NoArguments returns an error if there is an argument that belongs to no flag. It does not repeat an argument that may contain
// a password, such as the URL of a server.
func NoArguments(flags *flag.FlagSet) error {
	switch argument := flags.Arg(0); {
	case flags.NArg() == 0:
		return nil
	case strings.ContainsAny(argument, "@="):
		return errors.New("unexpected argument: the address of a server belongs to a flag")
	default:
		return fmt.Errorf("unexpected argument %q", argument)
	}
}
