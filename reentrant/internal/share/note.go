package share

import "github.com/relock-go/relock/backend"

// A note is what the session knows of the note that the server has with the session's units. Guarded by Name.mu.
type note struct {
	sending bool // a command is under way, or about to be sent
	again   bool // something has changed since the command was prepared
	text    string
	doubt   bool // the server may have another note
	epoch   uint64
	units   int // how many units the session had at the latest look: if it has more now, the server has forgotten the note
}

// NoteChanged sends the changed note of the users inside, in the background.
func (n *Name) NoteChanged() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noteLocked()
}

// noteLocked sends the note if the server does not have it. n.mu is held.
func (n *Name) noteLocked() {
	if n.note.sending {
		n.note.again = true
		return
	}
	if _, due := n.noteDueLocked(); due {
		n.note.sending = true
		n.room.session.Checks.Do(n.sendNotes)
	}
}

// noteDueLocked returns the request to send the note, and whether it is due. n.mu is held.
func (n *Name) noteDueLocked() (req backend.NoteRequest, due bool) {
	text := n.tier.Note()
	if text == "" && n.note.text == "" && !n.note.doubt {
		return req, false
	}
	has, _ := n.plan.Settled()
	switch {
	case has.Units == 0: // the server shows no earlier note with the next units
		n.note.text, n.note.doubt = "", false
	case n.note.epoch != has.Epoch, n.note.units < has.Units:
		n.note.doubt = n.note.doubt || n.note.text != ""
	}
	n.note.epoch, n.note.units = has.Epoch, has.Units
	return backend.NoteRequest{Epoch: has.Epoch, Text: text}, has.Units > 0 && (n.note.doubt || n.note.text != text)
}

// sendNotes sends notes until the server has the latest one, or a command fails. After a failure the next renewal sends the
// note again. If the server did not keep a note, because the units have another epoch there, the note is sent again after the
// reply to the claim with that epoch. sendNotes has no reference to the name, so that Close need not wait for it.
func (n *Name) sendNotes() {
	noter, ok := n.remote.(backend.ShareNoter)
	for ok {
		n.mu.Lock()
		req, due := n.noteDueLocked()
		n.note.sending, n.note.again = due, false
		n.mu.Unlock()
		if !due {
			return
		}
		ok = n.sendNote(noter, req)
	}
}

// sendNote sends one note, and reports whether sendNotes is to look again: the server has kept the note, or something has
// changed since it was prepared.
func (n *Name) sendNote(noter backend.ShareNoter, req backend.NoteRequest) (again bool) {
	ctx, _ := n.room.session.Apart(n.room.session.Config.CommandTimeout)
	kept, err := noter.NoteShared(ctx, req)
	n.mu.Lock()
	defer n.mu.Unlock()
	if kept {
		n.note.text = req.Text
	}
	n.note.doubt = n.note.doubt && !kept || err != nil && !backend.Refused(err)
	n.note.sending = kept || n.note.again
	return n.note.sending
}
