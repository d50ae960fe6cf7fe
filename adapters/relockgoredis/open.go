// Package relockgoredis opens Relock's connections with the options of a go-redis client, so that a program configures
// Redis once:
//
//	backend, err := relockgoredis.Open(ctx, client)
//	session, err := reentrant.NewSession(backend)
//
// Relock does not send its commands through go-redis: [Open] makes a rueidis client beside it, with connections of its
// own. Pool sizes, retries and buffers of go-redis therefore have no meaning for it.
package relockgoredis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/relock-go/relock/redisbackend"
)

// Open makes a Backend that connects to the Redis of a go-redis client: one server, a master that Sentinel names
// (NewFailoverClient), or a Cluster. A type that embeds one of go-redis's clients is fine too. The server is asked at once
// whether it is there and accepts the password, as [redisbackend.Open] does; the options are redisbackend's.
//
// These options are carried over: the address, the network, credentials and providers of credentials (asked for each
// connection), TLS, the dialer, the database, ClientName, DisableIdentity, the protocol (RESP2 or RESP3), DialTimeout and,
// if it is positive, ReadTimeout. The last one should be well below the lease, so that a renewal can be repeated.
// Open returns an error for options that matter and cannot be carried over: an OnConnect function, a
// StreamingCredentialsProvider, the ClusterSlots function of a ClusterClient (NewFailoverClusterClient sets it), and a
// Ring, whose servers do not know each other. Open cannot see hooks (AddHook): they are not called for Relock's
// commands and connections, dial hooks included. Nor is NewClient of ClusterOptions. A Limiter, push notifications
// and the choice of replicas for reading have no effect: every command of a lock is for the master. A failover client
// with ReplicaOnly gives a Backend that gets no lock, as Redis does not let replicas be written.
//
// The client must stay open for as long as the Backend is used: with Sentinel it is the client that finds the master.
// Close of the Backend ends Relock's connections, and leaves the client alone.
func Open(ctx context.Context, client redis.UniversalClient, opts ...redisbackend.Option) (*redisbackend.Backend, error) {
	option, err := clientOption(client)
	if err != nil {
		return nil, fmt.Errorf("relockgoredis: Open: %w", err)
	}
	return redisbackend.OpenClient(ctx, option, opts...)
}

// clientOption returns rueidis's options for the deployment of a client.
func clientOption(client redis.UniversalClient) (rueidis.ClientOption, error) {
	switch c := client.(type) {
	case nil:
		return rueidis.ClientOption{}, errors.New("nil client")
	case interface{ Options() *redis.Options }:
		o := c.Options()
		option, err := convert(o)
		option.InitAddress, option.ForceSingleClient = []string{o.Addr}, true
		return option, err
	case interface{ Options() *redis.ClusterOptions }:
		return convertCluster(c.Options())
	case interface{ Options() *redis.RingOptions }:
		return rueidis.ClientOption{}, errors.New("the servers of a Ring do not know each other: use the client of one of them")
	}
	return rueidis.ClientOption{}, fmt.Errorf("a %T does not show its options", client)
}

// convertCluster returns rueidis's options for a Cluster.
func convertCluster(o *redis.ClusterOptions) (rueidis.ClientOption, error) {
	node := &redis.Options{
		Network: "tcp", ClientName: o.ClientName, Dialer: o.Dialer, OnConnect: o.OnConnect, Protocol: o.Protocol,
		Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext: o.CredentialsProviderContext, StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, TLSConfig: o.TLSConfig,
		DisableIdentity: o.DisableIdentity, DisableIndentity: o.DisableIndentity, //nolint:staticcheck // some still set it
	}
	if node.Dialer == nil {
		node.Dialer = redis.NewDialer(node)
	}
	option, err := convert(node)
	option.InitAddress, option.ShuffleInit = o.Addrs, true
	if o.ClusterSlots != nil {
		err = errors.Join(err, errors.New("ClusterSlots cannot be carried over"))
	}
	return option, err
}

// convert returns what rueidis needs to connect to a server. The dialer is set: go-redis sets it where the caller does not.
func convert(o *redis.Options) (rueidis.ClientOption, error) {
	switch {
	case o.OnConnect != nil:
		return rueidis.ClientOption{}, errors.New("OnConnect cannot be carried over: it takes a connection of go-redis")
	case o.StreamingCredentialsProvider != nil:
		return rueidis.ClientOption{}, errors.New("StreamingCredentialsProvider cannot be carried over: use CredentialsProviderContext")
	}
	option := rueidis.ClientOption{
		Username: o.Username, Password: o.Password, AuthCredentialsFn: credentials(o),
		ClientName: o.ClientName, SelectDB: o.DB, AlwaysRESP2: o.Protocol == 2,
		TLSConfig: o.TLSConfig, // the dialer does the TLS handshake; in a Cluster this makes rueidis use the TLS ports
		Dialer:    net.Dialer{Timeout: dialTimeout(o)},
		DialCtxFn: func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialer.Timeout)
			defer cancel()
			return o.Dialer(ctx, o.Network, address)
		},
		ConnWriteTimeout: max(o.ReadTimeout, 0),
	}
	if o.DisableIdentity || o.DisableIndentity { //nolint:staticcheck // some still set it
		option.ClientSetInfo = rueidis.DisableClientSetInfo
	}
	return option, nil
}

// dialTimeout returns how long opening a connection may take.
func dialTimeout(o *redis.Options) time.Duration {
	return cmp.Or(max(o.DialTimeout, 0), rueidis.DefaultDialTimeout)
}

// credentials returns the function from which rueidis gets the credentials of a connection, nil if they do not change.
func credentials(o *redis.Options) func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	provider := o.CredentialsProviderContext
	if provider == nil && o.CredentialsProvider != nil {
		provider = func(context.Context) (string, string, error) {
			username, password := o.CredentialsProvider()
			return username, password, nil
		}
	}
	if provider == nil {
		return nil
	}
	return func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout(o))
		defer cancel()
		username, password, err := provider(ctx)
		return rueidis.AuthCredentials{Username: username, Password: password}, err
	}
}
