package redisbackend

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/relock-go/relock/backend"
)

// A deployment is one Redis and how locks are kept there: what a Backend's conns, and a quorum's nodes, have in common.
type deployment struct {
	client   rueidis.Client
	prefix   string
	channels string // the name of a session's channel, up to the session
	cluster  bool
	replicas replicas
	verbs    verbs
	scripts  *scripts
}

// verbs is how a deployment carries out what it is asked: by scripts, or by transactions where Lua is forbidden.
type verbs interface {
	// bind returns the verbs of one lock.
	bind(r *remote) backend.Remote
	// renew is backend.Conn's Renew.
	renew(ctx context.Context, c *conn, renewals []backend.Renewal)
	// probe inspects a lock, to see whether the server allows it.
	probe(ctx context.Context, r *remote) error
}

// scripted carries out the verbs by scripts.
type scripted struct{}

func (scripted) bind(r *remote) backend.Remote { return r }

func (scripted) probe(ctx context.Context, r *remote) error {
	_, err := r.Inspect(ctx)
	return err
}

// newDeployment returns the deployment that a client leads to, without options.
func newDeployment(client rueidis.Client) deployment {
	d := deployment{client: client, cluster: client.Mode() == rueidis.ClientModeCluster, verbs: scripted{}, scripts: loadScripts()}
	if d.cluster {
		d.scripts = loadClusterScripts()
	}
	return d
}

// complete sets what follows from the options. It returns an error if they contradict each other.
func (d *deployment) complete() error {
	if !d.scripted() && d.replicas.n > 0 {
		return errors.New("WithReplicas needs scripts (WithoutScripts)")
	}
	d.channels = d.prefix + reserved + "session:"
	return nil
}

func (d *deployment) scripted() bool { return d.verbs == scripted{} }
