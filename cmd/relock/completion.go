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
	return `Prints the script with which a shell completes relock's commands and flags. Put it where your shell reads it at its start:

  ~/.bashrc                      source <(relock completion bash)
  ~/.zshrc, after compinit       source <(relock completion zsh)
  ~/.config/fish/config.fish     relock completion fish | source`
}

// Run prints the shell's script, which calls `relock __complete`, and completes file names if that command prints no word.
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

// completeCommand is the command that the shells' scripts call.
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

// candidates returns the completions of the last word: commands, flags, or a command's fixed arguments. There are none
// in the place of names, values and other programs' arguments.
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
	case command == root:
		all = commandNames(root)
	case before[len(before)-1] != command.Name: // it has its argument
	case command.Name == "help":
		all = commandNames(root)
	case len(command.Positional) > 0:
		all = command.Positional[0].EnumSlice()
	}
	return slices.DeleteFunc(all, func(s string) bool { return s == "" || !strings.HasPrefix(s, last) })
}

// commandOf returns the command that words name. ok is false if relock does not know the completions of the next word: it
// is a flag's value, or comes after "--".
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

// findFlag returns the flag that word names, nil if there is none or word contains its value.
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
