package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/relock-go/relock/internal/protocol"
)

// Reserved is the beginning of every key that is not a hold, and of every channel.
const Reserved = protocol.Reserved

// Keys are the keys of one lock, in the order in which the scripts take them.
//
//	hold     <prefix>N
//	record   <prefix>relock:{T}:t:N
//	queue    <prefix>relock:{T}:q:N
//	waiters  <prefix>relock:{T}:w:N
//
// The lock for the conditions of a read-write lock (backend.ConditionsOf) has a reserved name, and is a lock like any
// other.
//
// T is the part of the hold key that Redis hashes to find its slot: the hash tag if there is one, else the whole key.
// protocol.CheckName ensures that T has no closing brace. So the first pair of braces of the other keys is the one around T,
// and all four keys have the same slot. N stands at the end, whole, so two names never share a key.
type Keys [4]string

// keyTypes are the types of the keys, as Redis names them. The record of a shared name is a hash.
var keyTypes = [len(Keys{})]string{"hash", "string hash", "list", "hash"}

// OtherData returns the index of a key whose data no session has written, and describes the data. types are the types of the
// keys: one that the key of a lock never has, or a hash as the hold without a record, shows other data. If the types show
// none, data is "".
func OtherData(types [len(Keys{})]string) (i int, data string) {
	for i, found := range types {
		if found != "none" && !slices.Contains(strings.Fields(keyTypes[i]), found) {
			return i, "a Redis " + found
		}
	}
	if types[0] == "hash" && types[1] == "none" {
		return 0, "a Redis hash of other data"
	}
	return 0, ""
}

// Hold returns the key of the lock itself, the hash that other programs read too.
func (k *Keys) Hold() string { return k[0] }

// maxPrefix bounds the prefix, which is part of every key.
const maxPrefix = 256

// CheckPrefix refuses a prefix that is too long, and one with which two locks could have the same key or the wrong slot.
func CheckPrefix(prefix string) error {
	switch {
	case len(prefix) > maxPrefix:
		return fmt.Errorf("WithPrefix: %d bytes, at most %d are allowed", len(prefix), maxPrefix)
	case strings.ContainsAny(prefix, "{}"):
		return fmt.Errorf("WithPrefix(%q): braces are not allowed, they decide the Cluster slot", prefix)
	case strings.Contains(prefix, Reserved):
		return fmt.Errorf("WithPrefix(%q): %q is reserved", prefix, Reserved)
	}
	return nil
}

// KeysOf returns the keys of a lock. The error says what is wrong with its name.
func KeysOf(prefix, name string) (Keys, error) {
	if err := protocol.CheckName(name); err != nil {
		return Keys{}, fmt.Errorf("redisbackend: %w", err)
	}
	hold := prefix + name
	side := prefix + Reserved + "{" + HashTag(hold) + "}:"
	sides := side + "t:" + name + side + "q:" + name + side + "w:" + name // one allocation for all three
	n := len(sides) / 3
	return Keys{hold, sides[:n], sides[n : 2*n], sides[2*n:]}, nil
}

// RedissonChannel returns the channel on which Redisson's clients publish that they freed a lock.
func RedissonChannel(hold string) string {
	if strings.Contains(hold, "{") {
		return "redisson_lock__channel:" + hold
	}
	return "redisson_lock__channel:{" + hold + "}"
}

// side returns the beginning of every key of the lock except the hold.
func (k *Keys) side(prefix string) string { return prefix + Reserved + "{" + HashTag(k.Hold()) + "}:" }

// Note returns the key of the holder's note:
//
//	note  <prefix>relock:{T}:n:N
func (k *Keys) Note(prefix string) string { return k.side(prefix) + "n:" + k.Hold()[len(prefix):] }

// WithNote returns the keys of the lock, then that of the note.
func (k *Keys) WithNote(prefix string) []string { return append(k[:len(k):len(k)], k.Note(prefix)) }

// ConditionKeys has the keys of one condition of a lock: the lock's own, then
//
//	tickets    <prefix>relock:{T}:c:<length of C>:C:N
//	signalled  <prefix>relock:{T}:s:…
//	terms      <prefix>relock:{T}:h:…
//
// The length says where the condition's name ends, so two pairs of names never share a key.
type ConditionKeys [7]string

// Condition returns the keys of a condition of the lock.
func (k *Keys) Condition(prefix, name string) ConditionKeys {
	side := k.side(prefix)
	rest := strconv.Itoa(len(name)) + ":" + name + ":" + k.Hold()[len(prefix):]
	return ConditionKeys{k[0], k[1], k[2], k[3], side + "c:" + rest, side + "s:" + rest, side + "h:" + rest}
}

// HashTag returns the part of a key that decides its slot: what is between the first opening brace and the next closing
// brace, if there is anything, else the whole key.
func HashTag(key string) string {
	_, after, ok := strings.Cut(key, "{")
	if !ok {
		return key
	}
	if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
		return tag
	}
	return key
}

// Slot returns the Cluster slot of a key: CRC16 (XMODEM) of its hash tag, modulo 16384.
func Slot(key string) uint16 {
	var crc uint16
	for _, c := range []byte(HashTag(key)) {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}
