package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/redis/rueidis"
)

// name is the prefix of all keys of this program in Redis: "redpacket:openid-17" is the lock of openid 17.
const name = "redpacket"

// partsKey is the list of the parts that are left, and ofKey is the list of the parts that an openid got. One command moves a
// part from the first list to the second. So the braces put both lists on one node of a Cluster.
const partsKey = "{" + name + "}:parts"

func ofKey(openid int) string { return "{" + name + "}:of:" + strconv.Itoa(openid) }

// lockName is the lock of an openid.
func lockName(openid int) string { return name + ":openid-" + strconv.Itoa(openid) }

// draw cuts an amount into random parts. Each part is at least one cent, and the sum of the parts is the amount.
func draw(cents, parts int) []int {
	cuts := map[int]bool{}
	for len(cuts) < parts-1 {
		cuts[1+rand.IntN(cents-1)] = true
	}
	amounts := make([]int, 0, parts)
	from := 0
	for _, cut := range slices.Sorted(maps.Keys(cuts)) {
		amounts = append(amounts, cut-from)
		from = cut
	}
	return append(amounts, cents-from)
}

// An answer is the result of a request.
type answer int

const (
	ask     answer = iota // no result yet: the packet may have a part for the openid
	granted               // the openid got a part
	already               // the openid already has a part
	late                  // the packet is empty
)

// A packet is the red packet in Redis.
type packet struct{ client rueidis.Client }

// fill stores the parts, and removes the parts of an earlier job.
func (p packet) fill(ctx context.Context, amounts []int, openids int) error {
	if err := p.clear(ctx, openids); err != nil {
		return err
	}
	err := p.client.Do(ctx, p.client.B().Rpush().Key(partsKey).Element(texts(amounts)...).Build()).Error()
	if err != nil {
		return fmt.Errorf("fill the packet: %w", err)
	}
	return nil
}

// clear removes the packet and the lists of the openids.
func (p packet) clear(ctx context.Context, openids int) error {
	keys := []string{partsKey}
	for openid := range openids {
		keys = append(keys, ofKey(openid))
	}
	if err := p.client.Do(ctx, p.client.B().Del().Key(keys...).Build()).Error(); err != nil {
		return fmt.Errorf("clear the packet: %w", err)
	}
	return nil
}

// look reports whether an openid has a part, or could still get one. It looks into the packet first. If the packet is empty,
// every part was given out before look reads the openid's list.
func (p packet) look(ctx context.Context, openid int) (answer, error) {
	b := p.client.B()
	lengths := p.client.DoMulti(ctx, b.Llen().Key(partsKey).Build(), b.Llen().Key(ofKey(openid)).Build())
	left, err := lengths[0].AsInt64()
	if err != nil {
		return ask, fmt.Errorf("look into the packet: %w", err)
	}
	has, err := lengths[1].AsInt64()
	switch {
	case err != nil:
		return ask, fmt.Errorf("look what openid %d has: %w", openid, err)
	case has > 0:
		return already, nil
	case left == 0:
		return late, nil
	}
	return ask, nil
}

// move gives an openid the first part that is left, even if the openid already has one.
func (p packet) move(ctx context.Context, openid int) (answer, error) {
	err := p.client.Do(ctx, p.client.B().Lmove().Source(partsKey).Destination(ofKey(openid)).Left().Right().Build()).Error()
	switch {
	case rueidis.IsRedisNil(err):
		return late, nil
	case err != nil:
		return ask, fmt.Errorf("give openid %d a part: %w", openid, err)
	}
	return granted, nil
}

// remains is the data in Redis after a job, in cents.
type remains struct {
	got  [][]int // by openid
	left []int   // still in the packet
}

// remains reads how the job ended.
func (p packet) remains(ctx context.Context, openids int) (remains, error) {
	lists := make(rueidis.Commands, 0, openids+1)
	for openid := range openids {
		lists = append(lists, p.client.B().Lrange().Key(ofKey(openid)).Start(0).Stop(-1).Build())
	}
	lists = append(lists, p.client.B().Lrange().Key(partsKey).Start(0).Stop(-1).Build())
	var all [][]int
	for _, list := range p.client.DoMulti(ctx, lists...) {
		amounts, err := amounts(list)
		if err != nil {
			return remains{}, fmt.Errorf("read the parts of the openids: %w", err)
		}
		all = append(all, amounts)
	}
	return remains{got: all[:openids], left: all[openids]}, nil
}

func amounts(list rueidis.RedisResult) ([]int, error) {
	lines, err := list.AsStrSlice()
	if err != nil {
		return nil, err
	}
	cents := make([]int, len(lines))
	for i, line := range lines {
		if cents[i], err = strconv.Atoi(line); err != nil {
			return nil, err
		}
	}
	return cents, nil
}

func texts(cents []int) []string {
	lines := make([]string, len(cents))
	for i, n := range cents {
		lines[i] = strconv.Itoa(n)
	}
	return lines
}
