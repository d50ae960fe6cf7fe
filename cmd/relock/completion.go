package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand is `relock completion`.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is shown by --help.
func (c *completionCommand) Help() string {
	return `Prints what makes a shell complete relock's commands and flags. Put it where your shell reads it when it starts:

  ~/.bashrc                      source <(relock completion bash)
  ~/.zshrc, after compinit       source <(relock completion zsh)
  ~/.config/fish/config.fish     relock completion fish | source`
}

// Run prints the shell's part. It asks `relock __complete`, and completes files where that has nothing to say.
func (c *completionCommand) Run(std *streams) error {
	_, err := fmt.Fprint(std.out, shellParts[c.Shell])
	return err
}

var shellParts = map[string]string{
	"bash": `_relock() {
	local IFS=$'\n'
	COMPREPLY=($("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _relock relock
`,
	"zsh": `_relock() {
	local -a found
	found=(${(f)"$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	if (( $#found )); then compadd -a found; else _default; fi
}
compdef _relock relock
`,
	"fish": `function __relock_complete
	set -l words (commandline -opc)
	set -l found ($words[1] __complete -- $words[2..-1] (commandline -ct | string collect --allow-empty) 2>/dev/null)
	if test (count $found) -gt 0
		printf '%s\n' $found
	else
		__fish_complete_path (commandline -ct)
	end
end
complete -c relock -f -a '(__relock_complete)'
`,
}

// completeCommand is what the shells ask.
type completeCommand struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints what the last word can become, one a line.
func (c *completeCommand) Run(k *kong.Kong, std *streams) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, word := range candidates(k.Model.Node, words) {
		fmt.Fprintln(std.out, word)
	}
	return nil
}

// candidates are what the last of the words after the program's name can become: a command, a flag, or a command's fixed
// argument. There are none where names, values and other programs' arguments stand.
func candidates(root *kong.Node, words []string) []string {
	if len(words) == 0 {
		return nil
	}
	before, last := words[:len(words)-1], words[len(words)-1]
	command, ok := commandOf(root, before)
	var all []string
	switch {
	case !ok:
	case strings.HasPrefix(last, "-"):
		all = flagNames(command)
	case command == root, command.Name == "help":
		all = commandNames(root)
	case len(command.Positional) > 0:
		all = command.Positional[0].EnumSlice()
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" || !strings.HasPrefix(s, last) })
}

// commandOf is the command that words have named so far. It is not ok where the next word is not relock's to know: the
// value of a flag, or something behind a command's first argument.
func commandOf(root *kong.Node, words []string) (command *kong.Node, ok bool) {
	command = root
	for i, word := range words {
		flag := findFlag(command, word)
		switch {
		case word == "--":
			return command, false
		case flag != nil && !flag.IsBool() && i == len(words)-1:
			return command, false
		case command == root && flag == nil:
			for _, child := range root.Children {
				if child.Name == word {
					command = child
				}
			}
		}
	}
	return command, true
}

// findFlag is the flag that a word is, without a value in it.
func findFlag(command *kong.Node, word string) *kong.Flag {
	for _, group := range command.AllFlags(true) {
		for _, flag := range group {
			if word == "--"+flag.Name || flag.Short != 0 && word == "-"+string(flag.Short) {
				return flag
			}
		}
	}
	return nil
}

func flagNames(command *kong.Node) (names []string) {
	for _, group := range command.AllFlags(true) {
		for _, flag := range group {
			names = append(names, "--"+flag.Name)
		}
	}
	return names
}

func commandNames(root *kong.Node) (names []string) {
	for _, child := range root.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	return names
}
