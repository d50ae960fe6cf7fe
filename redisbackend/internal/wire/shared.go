package wire

import (
	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/internal/protocol"
)

// CheckShare refuses impossible requests, and numbers out of bounds.
func CheckShare(req *backend.ShareRequest) error {
	if err := protocol.CheckShare(req); err != nil {
		return err
	}
	req.Lease, req.Patience, req.GrantTTL = min(req.Lease, MaxTTL), min(req.Patience, MaxTTL), min(req.GrantTTL, MaxTTL)
	req.Seen, req.Under, req.Tail = countable(req.Seen), countable(req.Under), countable(req.Tail)
	return CheckNumbers(req.Epoch)
}

// KindLetter returns the letter of a kind in the record.
func KindLetter(kind backend.ShareKind) string {
	if kind == backend.Permits {
		return "p"
	}
	return "r"
}

// KindOf returns the kind of a letter, 0 for any other text.
func KindOf(letter string) backend.ShareKind {
	switch letter {
	case "r":
		return backend.ReadWrite
	case "p":
		return backend.Permits
	}
	return 0
}
