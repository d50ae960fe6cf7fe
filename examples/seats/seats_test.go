package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/internal/redisserver"
	"github.com/relock-go/relock/internal/testsize"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// The test binary is also the program that runs as the servers.
func TestMain(m *testing.M) {
	if isChild() {
		os.Exit(childMain(os.Stdin, os.Stdout, os.Stderr))
	}
	// With the race detector each process would sleep for a second at its end.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	testsize.Parallel(32) // all tests at once, because they mostly wait
	testsize.CollectLess()
	os.Exit(m.Run())
}

// eventually is how long a test waits for anything before it fails.
const eventually = 2 * time.Minute

// A pair has two servers in the test's own process.
type pair struct {
	counters [2]*counter
	urls     [2]string
}

// redisURL returns the URL of a Redis for this test. The boards read all seats again and again, which costs the embedded Redis
// much processor time. So it is used only at full size, and where no other Redis is installed.
func redisURL(t *testing.T) string {
	t.Helper()
	if !testsize.Full() && redisserver.Installed() {
		return redisserver.Start(t).URL()
	}
	return "redis://" + redistest.Start(t).Addr()
}

// newPair opens two servers, with holds of the given length and payments that succeed at once.
func newPair(t *testing.T, hold time.Duration) *pair {
	t.Helper()
	r := role{Hold: hold, Redis: redisURL(t), DSN: filepath.Join(t.TempDir(), "seats.db")}
	src, err := parseSource(r.DSN)
	require.NoError(t, err)
	sales, err := openSales(t.Context(), src)
	require.NoError(t, err)
	require.NoError(t, sales.create(t.Context()))
	require.NoError(t, sales.close())
	p := &pair{}
	for i := range p.counters {
		r.Number = i + 1
		c, err := r.open(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)))
		require.NoError(t, err)
		c.server.patient = eventually
		ctx, stop := context.WithCancel(context.Background())
		web := httptest.NewUnstartedServer(c.server.handler())
		web.Config.BaseContext = func(net.Listener) context.Context { return ctx }
		web.Start()
		var looking sync.WaitGroup
		looking.Go(func() { c.board.run(ctx) })
		t.Cleanup(func() {
			stop()
			web.Close()
			looking.Wait()
			// Servers in real processes leave their holds when they end. Here no hold may outlast the test, so the sessions are
			// closed.
			_ = c.member.Session.Close(ctx)
			_ = c.board.session.Close(ctx)
			c.member.Client.Close()
			assert.NoError(t, c.sales.close())
		})
		p.counters[i], p.urls[i] = c, web.URL
	}
	return p
}

// A guest is a visitor's browser, without the page's script.
type guest struct {
	t      *testing.T
	client *http.Client
	urls   [2]string
}

// enters returns a guest who has opened the page at the first server.
func enters(t *testing.T, urls [2]string) *guest {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	g := &guest{t: t, client: &http.Client{Jar: jar}, urls: urls}
	response, err := g.client.Get(urls[0] + "/")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	return g
}

// asks presses a button of the page of server 1 or 2. If the server got no reply from Redis in time, it presses the button
// again, as the message says.
func (g *guest) asks(server int, what string, s seat) (status int, message string) {
	g.t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		status, message = g.asksOnce(server, what, s)
		if status != http.StatusServiceUnavailable || time.Since(begun) > eventually {
			return status, message
		}
	}
}

// asksOnce sends the request that the page sends when a button is pressed.
func (g *guest) asksOnce(server int, what string, s seat) (status int, message string) {
	g.t.Helper()
	response, err := g.client.Post(g.urls[server-1]+"/seats/"+string(s)+"/"+what, "", nil)
	if !assert.NoError(g.t, err) {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct{ Message string }
	assert.NoError(g.t, json.NewDecoder(response.Body).Decode(&answer))
	return response.StatusCode, answer.Message
}

// gets presses a button and asserts the reply.
func (g *guest) gets(want int, server int, what string, s seat) {
	g.t.Helper()
	status, message := g.asks(server, what, s)
	require.Equal(g.t, want, status, message)
}

// sees waits until the events of both servers show that a seat has a state; "" means free.
func (g *guest) sees(s seat, state string) {
	g.t.Helper()
	for _, url := range g.urls {
		g.seesAt(url, func(seen sight) bool { return seen.Seats[s].State == state })
	}
}

// seesAt waits for an event of one server that meets a condition.
func (g *guest) seesAt(url string, is func(sight) bool) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), eventually)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/events", nil)
	require.NoError(g.t, err)
	response, err := g.client.Do(request)
	require.NoError(g.t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(g.t, "text/event-stream", response.Header.Get("Content-Type"))
	var seen sight
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		seen = sight{}
		require.NoError(g.t, json.Unmarshal([]byte(text), &seen))
		if is(seen) {
			return
		}
	}
	require.Fail(g.t, "the event did not come", "last: %v, %v", seen, lines.Err())
}

// answered calls ask until Redis replies in time.
func answered(t *testing.T, ask func() error) {
	t.Helper()
	err := ask()
	for begun := time.Now(); err != nil && time.Since(begun) < eventually; err = ask() {
		time.Sleep(20 * time.Millisecond)
	}
	require.NoError(t, err)
}

func TestASeatIsHeldAndSoldOnce(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	ann, bob := enters(t, p.urls), enters(t, p.urls)
	ann.gets(http.StatusOK, 1, "hold", "A05")
	ann.sees("A05", "mine")
	bob.sees("A05", "held")
	status, message := bob.asks(2, "hold", "A05")
	assert.Equal(t, http.StatusConflict, status)
	assert.Equal(t, "Another visitor was faster: A5 is held for them. It may come free again.", message)
	bob.gets(http.StatusConflict, 1, "hold", "A05")
	bob.gets(http.StatusGone, 1, "pay", "A05")
	bob.gets(http.StatusGone, 2, "release", "A05")

	ann.gets(http.StatusOK, 2, "pay", "A05") // server 2 does not have the hold
	ann.sees("A05", "bought")
	bob.sees("A05", "sold")
	status, message = bob.asks(1, "hold", "A05")
	assert.Equal(t, http.StatusConflict, status)
	assert.Equal(t, "A5 is sold.", message)
	ann.gets(http.StatusOK, 1, "pay", "A05") // another payment changes nothing
	ann.gets(http.StatusGone, 1, "release", "A05")
	ann.sees("A05", "bought")
}

func TestThreeVisitorsRaceForASeat(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	guests := []*guest{enters(t, p.urls), enters(t, p.urls), enters(t, p.urls)}
	for _, s := range seats[:5] {
		statuses := make([]int, len(guests))
		var racing sync.WaitGroup
		for i, g := range guests {
			racing.Go(func() { statuses[i], _ = g.asks(1+i%2, "hold", s) })
		}
		racing.Wait()
		assert.ElementsMatch(t, []int{http.StatusOK, http.StatusConflict, http.StatusConflict}, statuses)
		for i, status := range statuses {
			if status == http.StatusOK {
				guests[i].gets(http.StatusOK, 2-i%2, "release", s)
			}
		}
	}
}

func TestAHoldEndsByItself(t *testing.T) {
	t.Parallel()
	for _, server := range []int{1, 2} {
		t.Run(fmt.Sprintf("server %d", server), func(t *testing.T) {
			t.Parallel()
			const hold = time.Second
			p := newPair(t, hold)
			ann, bob := enters(t, p.urls), enters(t, p.urls)
			begun := time.Now()
			ann.gets(http.StatusOK, 1, "hold", "A05")
			bob.getsInTheEnd(server, "A05")
			assert.Greater(t, time.Since(begun), hold)
			ann.gets(http.StatusGone, server, "pay", "A05")
			ann.gets(http.StatusGone, server, "release", "A05")
			ann.getsInTheEnd(server, "A05") // the guest who had the seat before can have it again
			ann.sees("A05", "")
		})
	}
}

// getsInTheEnd tries to pick a seat that another guest holds, until the seat is free.
func (g *guest) getsInTheEnd(server int, s seat) {
	g.t.Helper()
	require.Eventually(g.t, func() bool {
		status, _ := g.asks(server, "hold", s)
		return status == http.StatusOK
	}, eventually, 50*time.Millisecond)
}

// The page's promise is kept: the session does not give the hold up before the time that the page shows.
func TestTheWholeHoldIsTheVisitors(t *testing.T) {
	for _, hold := range []time.Duration{time.Second, 10 * time.Minute, 24 * time.Hour} {
		lease := leaseOf(hold)
		assert.GreaterOrEqual(t, lease-lease/100-2*time.Millisecond, hold)
	}
}

func TestALetGoSeatIsFree(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	ann, bob := enters(t, p.urls), enters(t, p.urls)
	for server := 1; server <= 2; server++ {
		ann.gets(http.StatusOK, 1, "hold", "A05")
		bob.sees("A05", "held")
		ann.gets(http.StatusOK, server, "release", "A05")
		bob.sees("A05", "")
		ann.gets(http.StatusGone, server, "release", "A05")
		bob.gets(http.StatusOK, 2, "hold", "A05")
		bob.gets(http.StatusOK, 1, "release", "A05")
	}
}

func TestTwoWindowsAreOneVisitor(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	ann, bob := enters(t, p.urls), enters(t, p.urls)
	for range 5 {
		var windows sync.WaitGroup
		for i := range 6 {
			windows.Go(func() {
				status, message := ann.asks(1+i%2, "hold", "A05")
				assert.Equal(t, http.StatusOK, status, message)
			})
		}
		windows.Wait()
		ann.gets(http.StatusOK, 1, "hold", "A05")
		ann.gets(http.StatusOK, 1, "release", "A05")
		bob.gets(http.StatusOK, 2, "hold", "A05") // however often ann picked the seat, one release frees it
		bob.gets(http.StatusOK, 2, "release", "A05")
	}
	ann.gets(http.StatusOK, 1, "hold", "A05")
	var windows sync.WaitGroup
	for i := range 4 {
		windows.Go(func() {
			status, message := ann.asks(1+i%2, "pay", "A05")
			assert.Contains(t, []int{http.StatusOK, http.StatusGone}, status, message)
		})
	}
	windows.Wait()
	ann.sees("A05", "bought")
}

// A till keeps payments waiting until the test lets them through.
type till struct {
	t     *testing.T
	keys  chan string // the keys of the payments that have begun
	ended chan struct{}
}

// paused makes payments wait.
func (p *pair) paused(t *testing.T) *till {
	w := &till{t: t, keys: make(chan string, 100), ended: make(chan struct{})}
	for _, c := range p.counters {
		c.server.desk.charge = w.charge
	}
	return w
}

func (t *till) charge(ctx context.Context, key string, _ int) error {
	t.keys <- key
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begins waits for a payment to begin, and returns its key.
func (t *till) begins() string {
	t.t.Helper()
	select {
	case key := <-t.keys:
		return key
	case <-time.After(eventually):
		require.Fail(t.t, "no visitor pays")
		return ""
	}
}

// ends lets all waiting payments through, and all later ones.
func (t *till) ends() { close(t.ended) }

// A payment is under way at server 1 when the same visitor pays at server 2. Two charges with the same key are the same
// payment.
func TestPayingGoesOnAtTheOtherServer(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	till := p.paused(t)
	ann := enters(t, p.urls)
	ann.gets(http.StatusOK, 1, "hold", "A05")
	var first, second sync.WaitGroup
	first.Go(func() {
		status, _ := ann.asks(1, "pay", "A05")
		assert.Equal(t, http.StatusGone, status)
	})
	key := till.begins()
	second.Go(func() {
		status, message := ann.asks(2, "pay", "A05")
		assert.Equal(t, http.StatusOK, status, message)
	})
	assert.Equal(t, key, till.begins())
	first.Wait() // because server 1 lost the hold to server 2
	till.ends()
	second.Wait()
	ann.sees("A05", "bought")
}

func TestSeatsArePaidForTogether(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	charges := make(chan int, 10)
	for _, c := range p.counters {
		c.server.desk.charge = func(_ context.Context, _ string, euros int) error {
			charges <- euros
			return nil
		}
	}
	ann, bob := enters(t, p.urls), enters(t, p.urls)
	ann.gets(http.StatusOK, 1, "hold", "A06")
	ann.gets(http.StatusOK, 2, "hold", "A05")
	ann.gets(http.StatusOK, 2, "hold", "A07")
	status, message := ann.asks(1, "pay", "A06,A05,A06")
	require.Equal(t, http.StatusOK, status, message)
	assert.Regexp(t, `^A5 and A6 are yours\. You paid €24\. Your ticket code is [A-Z2-7]{4}-[A-Z2-7]{4}\. Enjoy the film!$`, message)
	assert.Equal(t, 2*price, <-charges)
	for _, s := range []seat{"A05", "A06"} {
		ann.sees(s, "bought")
		bob.sees(s, "sold")
	}
	bob.gets(http.StatusConflict, 1, "hold", "A07") // the seat was not paid for, and ann still holds it
	ann.gets(http.StatusOK, 2, "pay", "A05,A06,A07")
	assert.Equal(t, price, <-charges, "seats that are bought already cost nothing")
}

// One of the holds has ended, so nothing is charged, and the other hold stays as it is.
func TestSeatsArePaidForTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	till := p.paused(t)
	ann, bob := enters(t, p.urls), enters(t, p.urls)
	ann.gets(http.StatusOK, 1, "hold", "A05")
	ann.gets(http.StatusOK, 1, "hold", "A06")
	ann.gets(http.StatusOK, 2, "release", "A06")
	status, message := ann.asks(1, "pay", "A05,A06")
	assert.Equal(t, http.StatusGone, status)
	assert.Equal(t, "Your hold of A6 has ended, and nothing was paid. If it is free, pick it again.", message)
	assert.Empty(t, till.keys)
	bob.gets(http.StatusConflict, 2, "hold", "A05")

	// The other hold ends during the payment.
	ann.gets(http.StatusOK, 1, "hold", "A06")
	var paying sync.WaitGroup
	paying.Go(func() {
		status, message := ann.asks(2, "pay", "A05,A06")
		assert.Equal(t, http.StatusGone, status)
		assert.Contains(t, message, "Your hold of A5 has ended")
	})
	assert.Regexp(t, `^A5-\d+,A6-\d+$`, till.begins())
	ann.gets(http.StatusOK, 2, "release", "A05")
	till.ends()
	paying.Wait()
	ann.sees("A05", "")
	ann.sees("A06", "mine")
}

// The visitor releases the seat in one window while paying for it in another.
func TestASeatLetGoDuringItsPaymentIsNotSold(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	till := p.paused(t)
	ann, bob := enters(t, p.urls), enters(t, p.urls)
	ann.gets(http.StatusOK, 1, "hold", "A05")
	var paying sync.WaitGroup
	paying.Go(func() {
		status, _ := ann.asks(1, "pay", "A05")
		assert.Equal(t, http.StatusGone, status)
	})
	till.begins()
	ann.gets(http.StatusOK, 1, "release", "A05")
	till.ends()
	paying.Wait()
	bob.gets(http.StatusOK, 1, "hold", "A05")
}

// An operator forces the lock open during a payment, and bob gets the seat.
func TestALateSaleIsRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	till := p.paused(t)
	ann, bob := enters(t, p.urls), enters(t, p.urls)
	ann.gets(http.StatusOK, 1, "hold", "A05")
	var paying sync.WaitGroup
	paying.Go(func() {
		status, _ := ann.asks(1, "pay", "A05")
		assert.Equal(t, http.StatusGone, status)
	})
	till.begins()
	lock := p.counters[1].member.Session.NewLock(seat("A05").lockName())
	answered(t, func() error { // this can be repeated, since no guest is meant to get the seat yet
		_, err := lock.ForceUnlock(t.Context())
		return err
	})
	bob.gets(http.StatusOK, 2, "hold", "A05")
	till.ends()
	paying.Wait()
	bob.sees("A05", "mine")
}

func TestASoldSeatCannotBeHeld(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	ann, bob := enters(t, p.urls), enters(t, p.urls)
	ann.gets(http.StatusOK, 1, "hold", "A05")
	ann.gets(http.StatusOK, 1, "pay", "A05")
	bob.gets(http.StatusConflict, 2, "hold", "A05")
	lock, locked := p.counters[0].member.Session.NewLock(seat("A05").lockName()), true
	answered(t, func() (err error) {
		locked, err = lock.IsLocked(t.Context())
		return err
	})
	assert.False(t, locked)
}

func TestAVisitorHoldsAFewSeats(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	ann := enters(t, p.urls)
	for _, s := range seats[:mostHolds] {
		ann.gets(http.StatusOK, 1, "hold", s)
		ann.sees(s, "mine")
	}
	status, message := ann.asks(2, "hold", "H10")
	assert.Equal(t, http.StatusConflict, status)
	assert.Equal(t, "You hold 4 seats, which is the most. Pay for one or let one go first.", message)
	ann.gets(http.StatusOK, 2, "release", seats[0])
	ann.sees(seats[0], "")
	ann.gets(http.StatusOK, 2, "hold", "H10")
}

func TestOnlyThePageActs(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	ann := enters(t, p.urls)
	do := func(client *http.Client, method, path, site string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, p.urls[0]+path, nil)
		require.NoError(t, err)
		if site != "" {
			request.Header.Set("Sec-Fetch-Site", site)
		}
		response, err := client.Do(request)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, response.Body)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	assert.Equal(t, http.StatusForbidden, do(ann.client, http.MethodPost, "/seats/A05/hold", "cross-site"))
	assert.Equal(t, http.StatusForbidden, do(ann.client, http.MethodPost, "/seats/A05/hold", "same-site"))
	assert.Equal(t, http.StatusMethodNotAllowed, do(ann.client, http.MethodGet, "/seats/A05/hold", "same-origin"))
	assert.Equal(t, http.StatusNotFound, do(ann.client, http.MethodPost, "/seats/Z99/hold", "same-origin"))
	assert.Equal(t, http.StatusNotFound, do(ann.client, http.MethodPost, "/seats/A05,Z99/pay", "same-origin"))
	assert.Equal(t, http.StatusNotFound, do(ann.client, http.MethodPost, "/seats/,/pay", "same-origin"))
	assert.Equal(t, http.StatusUnauthorized, do(http.DefaultClient, http.MethodPost, "/seats/A05/hold", "same-origin"))
	assert.Equal(t, http.StatusUnauthorized, do(http.DefaultClient, http.MethodGet, "/events", ""))
	ann.sees("A05", "")
	status := http.StatusServiceUnavailable
	for begun := time.Now(); status == http.StatusServiceUnavailable && time.Since(begun) < eventually; { // as in the method asks
		status = do(ann.client, http.MethodPost, "/seats/A05/hold", "same-origin")
	}
	assert.Equal(t, http.StatusOK, status)
}

func TestTheCookieIsASecret(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	response, err := http.Get(p.urls[0])
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Len(t, response.Cookies(), 1)
	c := response.Cookies()[0]
	assert.True(t, c.HttpOnly)
	assert.Equal(t, http.SameSiteLaxMode, c.SameSite)

	request := httptest.NewRequest(http.MethodGet, "/", nil)
	request.AddCookie(c)
	assert.Len(t, visitor(request), 32)
	assert.NotContains(t, visitor(request), c.Value)
	short := httptest.NewRequest(http.MethodGet, "/", nil)
	short.AddCookie(&http.Cookie{Name: cookie, Value: "guessed"})
	assert.Empty(t, visitor(short))
}

func TestEventsDoNotNameOtherVisitors(t *testing.T) {
	now := time.Now()
	h := hall{
		sold: map[seat]string{"A01": "ann", "A02": "bob"},
		held: map[seat]holder{
			"A03": {visitor: "ann", until: now.Add(time.Second)}, "A04": {visitor: "bob", until: now},
			"A05": {visitor: "ann", until: now.Add(-time.Second)},
		},
	}
	assert.Equal(t, sight{Seats: map[seat]seatSight{
		"A01": {State: "bought"}, "A02": {State: "sold"}, "A03": {State: "mine", Left: 1000}, "A04": {State: "held"}, "A05": {State: "mine"},
	}, Code: ticketCode("ann")}, h.seenBy("ann", now))
	assert.Empty(t, h.seenBy("cid", now).Code)
	assert.Equal(t, 2, h.holds("ann"))
}

// The locks behind the hall are shown on request, with the token of the hold and the server that has it. After a Resume that is
// another server. The visitors are not named.
func TestTheLocksAreShown(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	ann := enters(t, p.urls)
	shows := func(server int) (seen lockSights, text string) {
		t.Helper()
		response, err := ann.client.Get(p.urls[server-1] + "/locks")
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(body, &seen))
		return seen, string(body)
	}
	ann.gets(http.StatusOK, 1, "hold", "A05")
	ann.sees("A05", "mine")
	hall, _ := p.counters[0].board.look()
	id := hall.held["A05"].visitor
	token, err := p.counters[0].server.desk.timed("A05").Token(as(t.Context(), id))
	require.NoError(t, err)
	for server := 1; server <= 2; server++ {
		seen, text := shows(server)
		require.Len(t, seen.Locks, 1)
		l := seen.Locks[0]
		assert.Equal(t, "seats:A05", l.Lock)
		assert.Equal(t, token, l.Token)
		assert.Equal(t, "server-1", l.Server)
		assert.InDelta(t, time.Hour.Milliseconds(), l.Left, float64(eventually.Milliseconds()))
		assert.NotContains(t, text, id)
		assert.Equal(t, server == 1, seen.Commands > 0, "server %d sent %d commands for its visitors", server, seen.Commands)
	}
	ann.gets(http.StatusOK, 2, "release", "A05")
	ann.sees("A05", "")
	seen, _ := shows(1)
	assert.Empty(t, seen.Locks)
}

// A change is also seen without a message. Here it is made by a session that sends none.
func TestChangesAreSeenWithoutAMessage(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	ann := enters(t, p.urls)
	ctx := as(t.Context(), "carol")
	lock := p.counters[0].member.Session.NewLock(seat("B07").lockName(), reentrant.WithFixedLease(time.Hour))
	require.NoError(t, lock.Lock(ctx))
	ann.sees("B07", "held")
	require.NoError(t, lock.Unlock(ctx))
	ann.sees("B07", "")
}

// This board only listens and never looks by itself, so a nudge shows that a message was sent and received.
func TestServersAnnounceTheirChanges(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour)
	ann := enters(t, p.urls)
	member := p.counters[1].member
	b := newBoard(member.Session, member.Client, p.counters[1].sales, time.Hour, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	defer listening.Wait()
	defer stop()
	listening.Go(func() { b.listen(ctx) })
	require.Eventually(t, func() bool {
		ann.gets(http.StatusOK, 1, "hold", "A05")
		select {
		case <-b.nudged:
			return true
		default:
			return false
		}
	}, eventually, 20*time.Millisecond)
}

// The servers are real processes. The one that has the hold is killed, and the visitor continues at the other one.
func TestAKilledServerLeavesItsHolds(t *testing.T) {
	t.Parallel()
	c, err := open(t.Context(), options{servers: 2, hold: time.Hour}, t.Output())
	require.NoError(t, err)
	defer c.close()
	urls := [2]string{c.servers[0].address, c.servers[1].address}
	ann, bob := enters(t, urls), enters(t, urls)
	ann.gets(http.StatusOK, 1, "hold", "A05")
	ann.gets(http.StatusOK, 1, "hold", "A06")
	c.servers[0].kill()
	assert.Equal(t, "server 1 has ended: signal: killed; the holds go on at server 2, "+urls[1], c.ending(<-c.ended))
	urls[0] = urls[1] // only this server is left
	ann.urls, bob.urls = urls, urls
	ann.sees("A05", "mine")
	bob.gets(http.StatusConflict, 2, "hold", "A05")
	ann.gets(http.StatusOK, 2, "pay", "A05")
	ann.gets(http.StatusOK, 2, "release", "A06")
	bob.sees("A05", "sold")
	bob.sees("A06", "")
}

func TestAHoldOfAKilledServerEndsOnTime(t *testing.T) {
	t.Parallel()
	const hold = time.Second
	c, err := open(t.Context(), options{servers: 2, hold: hold}, t.Output())
	require.NoError(t, err)
	defer c.close()
	urls := [2]string{c.servers[1].address, c.servers[0].address}
	ann, bob := enters(t, urls), enters(t, urls)
	begun := time.Now()
	ann.gets(http.StatusOK, 2, "hold", "A05")
	c.servers[0].kill()
	bob.getsInTheEnd(1, "A05")
	assert.Greater(t, time.Since(begun), hold)
}

// The holds belong to the visitors, so they also outlast a server that is stopped in the regular way.
func TestAServerThatStopsLeavesItsHolds(t *testing.T) {
	t.Parallel()
	c, err := open(t.Context(), options{servers: 2, hold: time.Hour}, t.Output())
	require.NoError(t, err)
	defer c.close()
	urls := [2]string{c.servers[0].address, c.servers[1].address}
	ann := enters(t, urls)
	ann.gets(http.StatusOK, 1, "hold", "A05")
	c.servers[0].stop()
	require.NoError(t, c.servers[0].err)
	ann.urls[0] = urls[1]
	ann.sees("A05", "mine")
	ann.gets(http.StatusOK, 2, "pay", "A05")
}

// A trigger is a writer that calls a function when it has seen the text after.
type trigger struct {
	strings.Builder
	after string
	do    func()
}

func (t *trigger) Write(p []byte) (int, error) {
	n, err := t.Builder.Write(p)
	if strings.Contains(t.String(), t.after) {
		t.do()
	}
	return n, err
}

func TestTheShowIsTheNextOne(t *testing.T) {
	evening := time.Date(2026, time.November, 28, 20, 15, 0, 0, time.UTC)
	assert.Equal(t, evening, nextShow(evening.Add(-20*time.Hour)))
	assert.Equal(t, evening, nextShow(evening))
	assert.Equal(t, evening.AddDate(0, 0, 1), nextShow(evening.Add(time.Second)))
}

func TestTheProgram(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &trigger{after: "Ctrl-C ends it", do: interrupt}
	opts, err := parseOptions([]string{"-hold=1m"}, io.Discard)
	require.NoError(t, err)
	require.NoError(t, run(ctx, opts, out, t.Output()))
	assert.Regexp(t, `(?m)^server 1 +http://127\.0\.0\.1:\d+ `, out.String())
	assert.Regexp(t, `(?m)^server 2 +http://127\.0\.0\.1:\d+ `, out.String())
	assert.Contains(t, out.String(), "A seat is held for 1m0s.")

	var stderr strings.Builder
	assert.Equal(t, exitOK, parentMain([]string{"-help"}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "go run ./examples/seats")
	for _, bad := range []string{"-hold=0", "-unknown", "-redis=localhost:6379", "-dsn=user:secret@h", "extra"} {
		assert.Equal(t, exitUsage, parentMain([]string{bad}, io.Discard, &stderr), bad)
	}
	assert.NotContains(t, stderr.String(), "secret")
	assert.Equal(t, exitError, parentMain([]string{"-redis=redis://127.0.0.1:1"}, io.Discard, &stderr))
	assert.Contains(t, stderr.String(), "connect to Redis at redis://127.0.0.1:1")
}
