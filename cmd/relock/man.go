package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// manCommand is `relock man`.
type manCommand struct{}

// Help is shown by --help.
func (manCommand) Help() string {
	return `Examples:
  relock man | man -l -
  relock man >/usr/local/share/man/man1/relock.1`
}

// Run prints the help of all commands as a manual page.
func (manCommand) Run(k *kong.Kong, std *streams) error {
	m := manual{std.out}
	root := k.Model.Node
	title, rest, _ := strings.Cut(k.Model.Help, "\n")
	m.line(".TH RELOCK 1")
	m.line(".SH NAME")
	m.line(`relock \- ` + escaped(strings.TrimSuffix(title, ".")))
	m.line(".SH SYNOPSIS")
	for _, command := range root.Leaves(true) {
		m.line(`\fBrelock\fR ` + escaped(command.Summary()))
		m.line(".br")
	}
	m.line(".SH DESCRIPTION")
	m.text(rest)
	m.line(".SH OPTIONS")
	m.flags(root.Flags)
	m.line(".SH COMMANDS")
	for _, command := range root.Leaves(true) {
		m.line(".SS " + escaped("relock "+command.Summary()))
		m.text(command.Help + "\n\n" + command.Detail)
		m.flags(command.Flags)
	}
	m.line(".SH ENVIRONMENT")
	for _, flag := range root.Flags {
		for _, name := range flag.Envs {
			m.line(".TP\n.B " + escaped(name))
			m.text("The same as --" + flag.Name + ", which takes precedence.")
		}
	}
	return nil
}

// A manual is a page in the language of man(7).
type manual struct{ out io.Writer }

func (m manual) line(text string) { fmt.Fprintln(m.out, text) }

// text prints paragraphs. Indented lines stay as they are.
func (m manual) text(text string) {
	verbatim := false
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		line = strings.TrimSuffix(line, "\n")
		if indented := strings.HasPrefix(line, " "); indented != verbatim && line != "" {
			verbatim = indented
			m.line(map[bool]string{true: ".nf", false: ".fi"}[verbatim])
		}
		if line == "" {
			m.line(".PP")
			continue
		}
		m.line(escaped(line))
	}
	if verbatim {
		m.line(".fi")
	}
}

func (m manual) flags(flags []*kong.Flag) {
	for _, flag := range flags {
		m.line(".TP\n.B " + escaped(flag.String()))
		m.text(flag.Help)
	}
}

// escaped returns text escaped for troff.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
