package protocol

import (
	"errors"
	"fmt"
	"strings"

	"github.com/relock-go/relock/backend"
)

const (
	// Reserved is the beginning of every key that is not a hold, and of every channel. No name of a lock begins with it.
	Reserved = "relock:"
	// maxName bounds the names of locks. In Redis a name is part of four keys. Three of them can have the name twice, once as
	// the hash tag, so a long name costs seven times its length. (A note is a fifth key.)
	maxName = 4096
)

// CheckName returns an error for a name that no lock can have. A name that begins with backend.ConditionsPrefix is checked
// without that prefix.
func CheckName(name string) error {
	lock := strings.TrimPrefix(name, backend.ConditionsPrefix)
	switch {
	case lock == "":
		return errors.New("empty lock name")
	case len(lock) > maxName:
		return fmt.Errorf("lock name %s is %d bytes long, at most %d are allowed", quoted(lock), len(lock), maxName)
	case strings.HasPrefix(lock, Reserved):
		return fmt.Errorf("lock name %s starts with %q, which is reserved", quoted(lock), Reserved)
	case !bracesGiveSlot(lock):
		return fmt.Errorf("the braces of lock name %s give no Cluster slot: write them as {tag}, or leave } out", quoted(lock))
	}
	return nil
}

// bracesGiveSlot reports whether what Redis hashes to find a key's slot has no closing brace: the name's hash tag or, if
// it has none, all of it. Only then can other keys be put into the same slot.
func bracesGiveSlot(name string) bool {
	_, after, _ := strings.Cut(name, "{")
	return !strings.Contains(name, "}") || strings.Index(after, "}") > 0
}

// quoted returns a name as errors show it.
func quoted(name string) string {
	const most = 64
	if len(name) > most {
		return fmt.Sprintf("%q…", name[:most])
	}
	return fmt.Sprintf("%q", name)
}
