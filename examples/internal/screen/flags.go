package screen

import (
	"flag"
	"fmt"
	"io"
)

// NewFlags makes the flags of a program. Its -help says first what the program is for.
func NewFlags(program, purpose string, stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintf(stderr, "%s\nUsage: go run ./examples/%s [flags]\n\n", purpose, program)
		flags.PrintDefaults()
	}
	return flags
}
