package single

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A Deployment is one Redis and how locks are kept there: what a Backend's conns, and a quorum's nodes, have in common.
type Deployment struct {
	Client   rueidis.Client
	Prefix   string
	Channels string // the name of a session's channel, up to the session
	cluster  bool
	Replicas Replicas
	Redisson bool // Redisson's clients use the same locks
	Verbs    verbs
	scripts  *wire.Scripts
}

// verbs is how a deployment carries out what it is asked: by scripts, or by transactions where Lua is forbidden.
type verbs interface {
	// bind returns the verbs of one lock.
	Bind(r *Remote) backend.Remote
	// renew is backend.Conn's Renew.
	Renew(ctx context.Context, c *Conn, renewals []backend.Renewal)
	// InspectAll is backend.Inspector's.
	InspectAll(ctx context.Context, c *Conn, inspections []backend.Inspection)
	// probe inspects a lock, to see whether the server allows it.
	Probe(ctx context.Context, r *Remote) error
}

// scripted carries out the verbs by scripts.
type scripted struct{}

func (scripted) Bind(r *Remote) backend.Remote { return r }

func (scripted) Probe(ctx context.Context, r *Remote) error {
	_, err := r.Inspect(ctx)
	if err == nil && r.Conn.Deployment.lean() {
		r.teach(ctx)
	}
	return err
}

// teach has the server learn the scripts by which locks are taken, passed on and freed, so that their first use is one
// command: it runs each on a lock that is never taken, where it does nothing. Whatever fails will fail, or not, when the
// script is needed; so it is with the other nodes of a Cluster, which learn then.
func (r *Remote) teach(ctx context.Context) {
	s, build := r.Conn.Deployment.scripts, r.Conn.Deployment.Client.B()
	run := func(s *wire.Script, keys int, args ...string) rueidis.Completed {
		return build.Eval().Script(s.Text).Numkeys(int64(keys)).Key(r.Keys[:keys]...).Arg(args...).Build()
	}
	const late, none = "0", "no record is so"
	r.Conn.Deployment.Client.DoMulti(ctx,
		run(&s.Acquire, 4, r.Conn.Session, "0", "", "1", "1", late, "", "1", "0", "0", "0", "", "1"),
		run(&s.Release, 4, r.Conn.Session, "0", "0", "0", "", "0"),
		run(&s.Pass, 2, none), run(&s.Take, 3, none), run(&s.Free, 3, none), run(&s.Yield, 4, none))
}

// NewDeployment returns the deployment that a client leads to, without options.
func NewDeployment(client rueidis.Client) Deployment {
	d := Deployment{Client: client, cluster: client.Mode() == rueidis.ClientModeCluster, Verbs: scripted{}}
	d.scripts = wire.LoadScripts(wire.Variant{Cluster: d.cluster})
	return d
}

// Complete sets what follows from the options. It returns an error if they contradict each other.
func (d *Deployment) Complete() error {
	if !d.Scripted() && d.Replicas.Count > 0 {
		return errors.New("WithReplicas needs scripts (WithoutScripts)")
	}
	if !d.Scripted() && d.Redisson {
		return errors.New("WithRedisson needs scripts (WithoutScripts)")
	}
	d.scripts = wire.LoadScripts(wire.Variant{Cluster: d.cluster, Redisson: d.Redisson})
	d.Channels = d.Prefix + wire.Reserved + "session:"
	return nil
}

// Scripted reports whether the verbs are carried out by scripts.
func (d *Deployment) Scripted() bool { return d.Verbs == scripted{} }
