package single

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
	"github.com/relock-go/relock/redisbackend/internal/wire"
)

// A Deployment is one Redis and its options. All conns of a Backend share it; a quorum has one for each node.
type Deployment struct {
	Client   rueidis.Client
	Prefix   string
	Channels string // the name of a session's channel, up to the session
	cluster  bool
	Replicas Replicas
	Redisson bool // Redisson's clients use the same locks
	lean     bool // the lean scripts can be used: see Complete
	Verbs    verbs
	scripts  *wire.Scripts
	silent   *atomic.Bool // whether the latest script got no reply: see sendApart. Written by Remote.send
}

// verbs is the way in which a deployment executes verbs: by scripts, or by transactions where Lua is forbidden.
type verbs interface {
	// Bind returns the verbs of one lock.
	Bind(r *Remote) backend.Remote
	// Renew does what backend.Conn's Renew does, for c.
	Renew(ctx context.Context, c *Conn, renewals []backend.Renewal)
	// InspectAll does what backend.Inspector's InspectAll does, for c.
	InspectAll(ctx context.Context, c *Conn, inspections []backend.Inspection)
	// Probe inspects a lock, to see whether the server allows that.
	Probe(ctx context.Context, r *Remote) error
}

// scripted executes the verbs by scripts.
type scripted struct{}

func (scripted) Bind(r *Remote) backend.Remote { return r }

func (scripted) Probe(ctx context.Context, r *Remote) error {
	_, err := r.Inspect(ctx)
	if err == nil && r.Conn.Deployment.lean {
		r.teach(ctx)
	}
	return err
}

// teach loads the scripts by which locks are taken, passed on and freed into the server, so that their first use is one
// command. It runs each script on a lock that is never taken, where the script does nothing. Errors are ignored, since they
// show again when the script is needed. The other nodes of a Cluster load a script when it is first needed there.
func (r *Remote) teach(ctx context.Context) {
	s, build := r.Conn.Deployment.scripts, r.Conn.Deployment.Client.B()
	run := func(s *wire.Script, keys int, args ...string) rueidis.Completed {
		return build.Eval().Script(s.Text).Numkeys(int64(keys)).Key(r.Keys[:keys]...).Arg(args...).Build()
	}
	const late, none = "0", "no record is so"
	r.Conn.Deployment.Client.DoMulti(ctx,
		run(&s.Acquire, 4, r.Conn.Session, "0", "", "1", "1", late, "", "1", "0", "0", "0", "", "1"),
		run(&s.Release, 4, r.Conn.Session, "0", "0", "0", "", "0", "0"),
		run(&s.Pass, 2, none), run(&s.Take, 3, none), run(&s.Free, 3, none), run(&s.Yield, 4, none))
}

// NewDeployment returns the deployment of a client, without options.
func NewDeployment(client rueidis.Client) Deployment {
	d := Deployment{Client: client, cluster: client.Mode() == rueidis.ClientModeCluster, Verbs: scripted{}, silent: new(atomic.Bool)}
	d.scripts = wire.LoadScripts(wire.Variant{Cluster: d.cluster})
	return d
}

// Complete sets the fields that depend on the options. It returns an error if the options contradict each other.
func (d *Deployment) Complete() error {
	if !d.Scripted() && d.Replicas.Count > 0 {
		return errors.New("WithReplicas needs scripts (WithoutScripts)")
	}
	if !d.Scripted() && d.Redisson {
		return errors.New("WithRedisson needs scripts (WithoutScripts)")
	}
	d.scripts = wire.LoadScripts(wire.Variant{Cluster: d.cluster, Redisson: d.Redisson})
	d.Channels = d.Prefix + wire.Reserved + "session:"
	d.lean = d.Replicas.Count == 0 && !d.Redisson // not if replicas must acknowledge; Redisson's clients keep no record
	return nil
}

// Scripted reports whether the verbs are executed by scripts.
func (d *Deployment) Scripted() bool { return d.Verbs == scripted{} }
