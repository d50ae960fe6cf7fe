package redisserver

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// A Cluster is a Redis Cluster of this test alone.
type Cluster struct {
	Masters  []*Server   // each with an equal part of the slots, in order
	Replicas [][]*Server // the replicas of each master, in the order of Masters
}

const (
	// clusterTimeout is how long the nodes may take to agree.
	clusterTimeout = time.Minute
	// meetTries is how often the nodes are introduced to each other: a node forgets another node that does not reply in time.
	meetTries = 3
	// betweenAsks is the pause before nodes are asked again. Each question makes a new connection, and the nodes need seconds
	// to agree.
	betweenAsks = 50 * time.Millisecond
	// formed is the channel over which the nodes show that they hear each other.
	formed = "relock-cluster-formed"
)

// StartCluster starts a Cluster that is stopped when the test ends. Options are given to every node.
func StartCluster(tb testing.TB, masters, replicasEach int, options ...string) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for range masters {
		c.Masters = append(c.Masters, startNode(tb, options))
		var replicas []*Server
		for range replicasEach {
			replicas = append(replicas, startNode(tb, options))
		}
		c.Replicas = append(c.Replicas, replicas)
	}
	if err := c.form(); err != nil {
		tb.Fatal(err)
	}
	return c
}

// startNode starts a node that does not know any other node yet.
func startNode(tb testing.TB, options []string) *Server {
	tb.Helper()
	return begin(tb, &Server{dir: tb.TempDir(), bus: true, options: append([]string{"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf", "--repl-diskless-sync-delay", "0"}, options...)})
}

// Nodes returns all servers of the Cluster.
func (c *Cluster) Nodes() []*Server {
	nodes := append([]*Server{}, c.Masters...)
	for _, replicas := range c.Replicas {
		nodes = append(nodes, replicas...)
	}
	return nodes
}

// Addrs returns the addresses of all servers.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, node := range c.Nodes() {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// slots is the number of slots of a Cluster.
const slots = 16384

func (c *Cluster) form() error {
	nodes, n := c.Nodes(), len(c.Masters)
	for i, node := range nodes {
		// The nodes need not negotiate their epochs if these differ from the beginning.
		if _, err := node.Command("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
	}
	for i, master := range c.Masters {
		add := []string{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE needs Redis 7
		for slot := slots * i / n; slot < slots*(i+1)/n; slot++ {
			add = append(add, strconv.Itoa(slot))
		}
		if _, err := master.Command(add...); err != nil {
			return err
		}
	}
	if err := c.meet(); err != nil {
		return err
	}
	if err := c.replicate(); err != nil { // meanwhile the first two seconds of the masters pass, in which they accept nothing
		return err
	}
	if err := awaitAll(nodes, "CLUSTER INFO", "cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d\r", slots),
		fmt.Sprintf("cluster_known_nodes:%d\r", len(nodes))); err != nil {
		return err
	}
	if err := awaitAll(slices.Concat(c.Replicas...), "INFO replication", "master_link_status:up"); err != nil {
		return err
	}
	return awaitMessages(nodes)
}

// arrivals has the messages that subscribers have received. Each key has the node that published the message, and the node at
// which it arrived.
type arrivals struct {
	mu  sync.Mutex
	all map[[2]string]bool
	err error // why a subscriber has ended
}

// awaitMessages waits until what is published at each node arrives at all nodes. Nodes that agree on everything can still lose
// each other's messages until their cluster-node-timeout has passed and they have replaced connections that do not work.
func awaitMessages(nodes []*Server) error {
	got := &arrivals{all: map[[2]string]bool{}}
	var subscribers sync.WaitGroup
	defer subscribers.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, node := range nodes {
		client, err := node.connect()
		if err != nil {
			return err
		}
		subscribers.Go(func() { got.receive(ctx, client, node.addr) })
	}
	for deadline := time.Now().Add(clusterTimeout); ; time.Sleep(betweenAsks) {
		n, err := got.count()
		if err != nil || n == len(nodes)*len(nodes) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("redisserver: of the messages from %d nodes to each, %d arrived within %v", len(nodes), n, clusterTimeout)
		}
		if err := publishAll(nodes); err != nil {
			return err
		}
	}
}

// receive subscribes at a node until ctx ends, and then closes the client.
func (a *arrivals) receive(ctx context.Context, client rueidis.Client, at string) {
	defer client.Close()
	err := client.Receive(ctx, client.B().Subscribe().Channel(formed).Build(), func(m rueidis.PubSubMessage) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all[[2]string{m.Message, at}] = true
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = fmt.Errorf("redisserver: %s: subscribe: %w", at, err)
}

func (a *arrivals) count() (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all), a.err
}

// publishAll publishes the address of every node at that node.
func publishAll(nodes []*Server) error {
	for _, node := range nodes {
		if _, err := node.Command("PUBLISH", formed, node.addr); err != nil {
			return err
		}
	}
	return nil
}

// replicate gives the masters their replicas.
func (c *Cluster) replicate() error {
	for i, replicas := range c.Replicas {
		master, err := ids(c.Masters[i])
		if err != nil {
			return err
		}
		for _, replica := range replicas {
			if _, err := replica.Command("CLUSTER", "REPLICATE", master[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// ids returns the names by which nodes know each other.
func ids(nodes ...*Server) (all []string, err error) {
	for _, node := range nodes {
		id, err := node.Command("CLUSTER", "MYID")
		if err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	return all, nil
}

// meet introduces the nodes to each other, and waits until each node knows all others by name.
func (c *Cluster) meet() error {
	nodes := c.Nodes()
	names, err := ids(nodes...)
	if err != nil {
		return err
	}
	for range meetTries {
		for i, node := range nodes {
			for _, other := range nodes[:i] {
				host, port, _ := net.SplitHostPort(other.Addr())
				if _, err := node.Command("CLUSTER", "MEET", host, port); err != nil {
					return err
				}
			}
		}
		if err = awaitAll(nodes, "CLUSTER NODES", names...); err == nil {
			break
		}
	}
	return err
}

// awaitAll waits until every server replies to a command with all of the words. It asks the servers in order. If one of them
// does not reply so, awaitAll pauses and begins again with the first.
func awaitAll(servers []*Server, command string, words ...string) error {
	for deadline := time.Now().Add(clusterTimeout); ; time.Sleep(betweenAsks) {
		last := ""
		waits := slices.ContainsFunc(servers, func(s *Server) bool {
			var err error
			last, err = s.Command(strings.Fields(command)...)
			return err != nil || !containsAll(last, words)
		})
		if !waits {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("redisserver: not within %v: %s with %q; now: %s", clusterTimeout, command, words, last)
		}
	}
}

func containsAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// commandTimeout is how long one call of Command may take.
const commandTimeout = 30 * time.Second

// Command sends the server one command over a new connection, and returns the reply as text.
func (s *Server) Command(words ...string) (string, error) {
	client, err := s.connect()
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	reply, err := client.Do(ctx, client.B().Arbitrary(words...).Build()).ToMessage()
	if err != nil {
		return "", fmt.Errorf("redisserver: %s: %.200s: %w", s.addr, strings.Join(words, " "), err)
	}
	return text(reply), nil
}

// connect opens a connection to this server only, even if the server is a node of a Cluster.
func (s *Server) connect() (rueidis.Client, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.addr}, ForceSingleClient: true,
		DisableCache: true, DisableRetry: true, AlwaysRESP2: true, ClientSetInfo: rueidis.DisableClientSetInfo,
		RingScaleEachConn: 6, ReadBufferEachConn: 1 << 12, WriteBufferEachConn: 1 << 12})
	if err != nil {
		return nil, fmt.Errorf("redisserver: %s: %w", s.addr, err)
	}
	return client, nil
}

func text(m rueidis.RedisMessage) string {
	if s, err := m.ToString(); err == nil {
		return s
	}
	if n, err := m.ToInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	return m.String()
}
