package redisbackend

import (
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend/internal/quorum"
	"github.com/relock-go/relock/redisbackend/internal/single"
)

// A Quorum is a lock service over 3 or 5 independent masters (RedLock): it works while a majority of them can be
// reached, and no lock is lost with a master that fails. Each node gets the same commands as a single Redis, with the
// same scripts, and a majority decides.
//
//	                      node 1        node 2        node 3
//	acquire e7 ─────────▶ granted 42    granted 42    (no reply)      2 of 3: acquired, token 42
//	acquire of another ─▶ held          held          granted         1 of 3: given back, tried again later
//
//	◀──────────────────────── lease ─────────────────────────▶
//	sent ── nodes count from here on ──── trusted until ── margin
//
// A verb asks all nodes at once. It returns when a majority has decided, or when no majority can decide any more. It waits
// for a slow or dead node only up to a time limit; a later reply is handled when it comes.
//
// # Safety
//
// A node has a lock for one session at a time, and any two majorities share a node. So two owners can hold a lock only if
// a node forgets one of them. A hold that all nodes have is safe when any minority of them forgets it; a hold that only a
// bare majority has, because the other nodes were away, is safe when none does. Therefore a renewal (every third of a
// lease) puts the hold back on nodes that have forgotten it, or where its lease has ended while they were cut off. It does
// so only if a majority has the hold in that very renewal, and only where a node finds the lock free, so it never
// displaces another owner. Still, a master without persistence forgets its holds when it crashes: run it with appendfsync
// always, or keep it away for the longest lease. A replica that takes over may forget too: a node must have no failover.
//
// # Tokens
//
// The token of a hold is the highest that the nodes of its majority have given. Before the hold is granted the token is
// written back until a majority of the nodes has it as their last. The next holder's majority shares a node with these.
// This node gives a token above its last one, so the next holder's token is higher too. Mostly no write is necessary: the
// attempt proposes a token a little ahead of the nodes' clocks, and all give that token.
//
// # Limits
//
// There is no queue of sessions: nodes that each gave a freed lock to its own longest waiter would give it to
// different sessions, and none would have a majority. A session that has to wait tries again after a pause that doubles
// up to an eighth of a second, with jitter; one waiting session receives a message when the lock is given back and
// tries at once. So between processes there is no order of arrival: a session may be overtaken any number of times, and
// its wait has no bound. Within a process the order is as always. A session whose turn is over gives the lock back if
// it knows that another session waits.
//
// Conditions need a queue of sessions: without it the waits and signals of a lock's conditions return errors.ErrUnsupported
// ([backend.Conditions]). Holds do not move between sessions ([backend.Resumer]), and deadlocks are found within a
// session only ([backend.Registry]).
//
// When fewer than a majority can be reached the error is [reentrant.ErrNoQuorum], after half a second for a round (all
// nodes are asked at once; an attempt may have two rounds, and opening a session takes up to five seconds if nodes
// hang); what some nodes granted is given back. The error then never says that another session has the lock.
type Quorum = quorum.Quorum

// NewQuorum makes a Quorum over 3 or 5 clients, each of one independent standalone master: neither a Cluster nor
// Sentinels. No command is sent yet: opening a session detects that two of them are one server under two names, if both
// can be reached and accept writes then. The options are those of New, except WithReplicas, WithoutScripts and
// WithRedisson; all processes must use the same nodes with the same prefix.
//
// A client with a short Dialer.Timeout and ConnWriteTimeout forgets a dead node's commands sooner. Set
// ForceSingleClient in rueidis's options: rueidis.NewClient then returns a client along with its error even for a node that
// is down, and the process can start without that node.
func NewQuorum(clients []rueidis.Client, opts ...Option) (*Quorum, error) {
	if n := len(clients); n != 3 && n != 5 {
		return nil, fmt.Errorf("redisbackend: NewQuorum: %d clients, 3 or 5 are needed", n)
	}
	nodes := make([]*single.Deployment, len(clients))
	for i, client := range clients {
		d, err := independent(client, opts)
		if err != nil {
			return nil, fmt.Errorf("redisbackend: NewQuorum: node %d: %w", i+1, err)
		}
		nodes[i] = d
	}
	q, err := quorum.New(nodes)
	if err != nil {
		return nil, fmt.Errorf("redisbackend: NewQuorum: %w", err)
	}
	return q, nil
}

// independent returns the deployment that a client reaches, as a node of a quorum. It returns an error for a client of
// Sentinels or a Cluster, and for an option that a quorum does not allow.
func independent(client rueidis.Client, opts []Option) (*single.Deployment, error) {
	if client != nil && client.Mode() != rueidis.ClientModeStandalone {
		return nil, errors.New("not a standalone master: a failover would forget the holders of the locks")
	}
	b, err := New(client, opts...)
	switch {
	case err != nil:
		return nil, err
	case b.deployment.Replicas.Count > 0:
		return nil, errors.New("WithReplicas: the nodes are each other's replicas")
	case !b.deployment.Scripted():
		return nil, errors.New("WithoutScripts: a quorum needs scripts")
	case b.deployment.Redisson:
		return nil, errors.New("WithRedisson: Redisson's getLock is a lock of one master")
	}
	return &b.deployment, nil
}
