package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// mistake returns a message for an error of the parser: what is wrong in the command line, and what would be right.
func mistake(ctx *kong.Context, err error) string {
	text, command := ownWords(err), ctx.Selected()
	if command != nil {
		text = strings.TrimPrefix(text, command.Name+": ")
		if saysWhatIsRight.MatchString(text) {
			return text
		}
		return fmt.Sprintf("%s\nusage: relock %s (relock help %s)", text, synopsis(command), command.Name)
	}
	switch {
	case strayWord.MatchString(text):
		return strayWord.ReplaceAllString(text, "there is no command $1$2; there are") + commandsOf(ctx.Model.Node)
	case strings.HasPrefix(text, "expected one of "):
		return "the command is missing; there are" + commandsOf(ctx.Model.Node)
	case strings.HasPrefix(text, "unknown flag "):
		return text + "\nusage: relock COMMAND [OPTION…] (a command's own options come after it; relock help COMMAND lists them)"
	}
	return text
}

// mistakeOf is mistake for an error of Parse.
func mistakeOf(err error) string {
	parsing, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return ownWords(err)
	}
	return mistake(parsing.Context, err)
}

// strayWord matches what the parser says of a word that it does not expect.
var strayWord = regexp.MustCompile(`(?s)^unexpected argument (.*?)( \(did you mean .*)?$`)

// saysWhatIsRight matches errors that need no synopsis: those about a value, and those that have one.
var saysWhatIsRight = regexp.MustCompile(`^(--|-\w: |the SHELL |the command is )`)

// commandsOf lists the commands, each with what it does.
func commandsOf(root *kong.Node) string {
	var list strings.Builder
	for _, command := range root.Children {
		if !command.Hidden {
			fmt.Fprintf(&list, "\n  %-11s %s", command.Name, command.Help)
		}
	}
	return list.String()
}

// synopsis returns how a command is written, in the words of the manual: "inspect [OPTION…] NAME".
func synopsis(command *kong.Node) string {
	text := command.Name + " [OPTION…]"
	for _, arg := range command.Positional {
		name := strings.ToUpper(arg.Name)
		switch {
		case arg.Passthrough:
			name = "-- COMMAND [ARGUMENT…]"
		case !arg.Required:
			name = "[" + name + "]"
		}
		text += " " + name
	}
	return text
}
