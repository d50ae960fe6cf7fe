package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/relock-go/relock/reentrant"
)

//go:embed web
var web embed.FS

var pageTemplate = template.Must(template.ParseFS(web, "web/page.html"))

// A server is the web server of one process.
type server struct {
	desk    *desk
	board   *board
	metrics http.Handler // what Prometheus reads
	number  int          // the number of this server, from 1 on
	servers []string     // the addresses of all servers
	show    time.Time    // when the film begins
	patient time.Duration
	log     *slog.Logger
}

// handler returns the routes of the server.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /locks", s.locks)
	mux.HandleFunc("POST /seats/{seat}/hold", s.hold)
	mux.HandleFunc("POST /seats/{seat}/release", s.release)
	mux.HandleFunc("POST /seats/{seats}/pay", s.pay) // several have commas between them
	mux.Handle("GET /metrics", s.metrics)
	for _, file := range []string{"style.css", "page.js", "icon.svg"} {
		mux.HandleFunc("GET /"+file, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, web, "web/"+file)
		})
	}
	// Every change is a POST. Pages of other sites cannot send a POST that counts: browsers leave out the cookie, and name the
	// origin of the request.
	return hardened(http.NewCrossOriginProtection().Handler(mux))
}

// hardened forbids browsers to load anything from other sites, and to show the page inside another.
func hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// cookie is the name of the cookie with the secret that identifies a visitor. Cookies ignore ports, so both servers get the
// same one.
const cookie = "seats-visitor"

// visitor returns the name of the visitor who sent a request; "" if the request has no cookie. The name is derived from the
// secret. It is as hard to guess as the secret, but who reads the name in Redis or SQL does not get access.
func visitor(r *http.Request) string {
	c, err := r.Cookie(cookie)
	if err != nil || len(c.Value) != len(rand.Text()) {
		return ""
	}
	sum := sha256.Sum256([]byte(c.Value))
	return hex.EncodeToString(sum[:16])
}

// page shows the hall.
func (s *server) page(w http.ResponseWriter, r *http.Request) {
	if visitor(r) == "" {
		http.SetCookie(w, &http.Cookie{
			Name: cookie, Value: rand.Text(), Path: "/", MaxAge: 24 * 60 * 60,
			HttpOnly: true, SameSite: http.SameSiteLaxMode, // with https it would be Secure too
		})
	}
	w.Header().Set("Cache-Control", "no-store")
	if err := pageTemplate.Execute(w, s.view()); err != nil {
		s.log.Warn("the page was not sent", "error", err)
	}
}

// ticketCode returns the code that a visitor shows at the door: one code for all the seats that the visitor has bought. Like
// the visitor's name, the code is derived from the secret.
func ticketCode(visitor string) string {
	sum := sha256.Sum256([]byte("ticket " + visitor))
	code := base32.StdEncoding.EncodeToString(sum[:5])
	return code[:4] + "-" + code[4:]
}

// A view is the data of the page. The states of the seats come with the first event.
type view struct {
	Rows    []viewRow
	Hold    time.Duration
	Price   int
	Show    time.Time
	Number  int
	Servers []viewServer // in the same order on each server's page
}

type viewRow struct {
	Name  string
	Seats []viewSeat
}

type viewSeat struct {
	ID, Row, Number string
	Wheelchair      bool
}

type viewServer struct {
	Number  int
	Address string
	Here    bool
}

// HoldText returns the length of a hold, for display.
func (v view) HoldText() string {
	if v.Hold%time.Minute == 0 && v.Hold > time.Minute {
		return fmt.Sprintf("%d minutes", v.Hold/time.Minute)
	}
	return fmt.Sprintf("%.0f seconds", v.Hold.Seconds())
}

func (s *server) view() view {
	v := view{Hold: s.desk.hold, Price: price, Show: s.show, Number: s.number}
	for i, each := range seats {
		if i%columns == 0 {
			v.Rows = append(v.Rows, viewRow{Name: each.row()})
		}
		row := &v.Rows[len(v.Rows)-1]
		row.Seats = append(row.Seats, viewSeat{string(each), each.row(), each.number(), each.wheelchair()})
	}
	for i, address := range s.servers {
		v.Servers = append(v.Servers, viewServer{Number: i + 1, Address: address, Here: i+1 == s.number})
	}
	return v
}

// events sends the hall as the visitor sees it, first at once and then whenever it changes.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	guest := visitor(r)
	if guest == "" {
		http.Error(w, "no cookie: open the page first", http.StatusUnauthorized)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flusher := http.NewResponseController(w)
	for {
		hall, changed := s.board.look()
		text, err := json.Marshal(hall.seenBy(guest, time.Now()))
		if err != nil {
			s.log.Error("event", "error", err)
			return
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil || flusher.Flush() != nil {
			return // the page is closed
		}
		select {
		case <-changed:
		case <-time.After(15 * time.Second): // so that no proxy takes the connection for dead
		case <-r.Context().Done():
			return
		}
	}
}

// A sight is the hall as one visitor sees it: the seats that are not free. It does not name other visitors.
type sight struct {
	Seats map[seat]seatSight `json:"seats"`
	Stale bool               `json:"stale"`
	Code  string             `json:"code,omitempty"` // of the visitor's tickets
}

type seatSight struct {
	State string `json:"state"`          // held, mine, sold, bought, unknown
	Left  int64  `json:"left,omitempty"` // of the visitor's own hold, in ms
}

func (h hall) seenBy(visitor string, now time.Time) sight {
	seen := sight{Seats: map[seat]seatSight{}, Stale: h.stale}
	for s := range h.unread {
		seen.Seats[s] = seatSight{State: "unknown"}
	}
	for s, holder := range h.held {
		seen.Seats[s] = seatSight{State: "held"}
		if holder.visitor == visitor {
			seen.Seats[s] = seatSight{State: "mine", Left: max(0, holder.until.Sub(now).Milliseconds())}
		}
	}
	for s, buyer := range h.sold {
		seen.Seats[s] = seatSight{State: "sold"}
		if buyer == visitor {
			seen.Seats[s] = seatSight{State: "bought"}
			seen.Code = ticketCode(visitor)
		}
	}
	return seen
}

// lockSights has the locks behind the hall, and what they cost this server.
type lockSights struct {
	Locks    []lockSight `json:"locks"`
	Taken    uint64      `json:"taken"`    // by this server's visitors
	Commands uint64      `json:"commands"` // commands that this server has sent for its visitors
}

type lockSight struct {
	Lock   string          `json:"lock"`
	Token  reentrant.Token `json:"token"`
	Server string          `json:"server"` // that has the hold
	Left   int64           `json:"left"`   // in ms
}

// locks sends the locks of the seats that are held, without their owners.
func (s *server) locks(w http.ResponseWriter, _ *http.Request) {
	stats := s.desk.session.Stats()
	seen := lockSights{Locks: []lockSight{}, Taken: stats.Acquired, Commands: stats.Commands}
	hall, _ := s.board.look()
	for _, each := range seats {
		if h, held := hall.held[each]; held {
			name, _, _ := strings.Cut(h.session, ".") // an id begins with the session's name
			seen.Locks = append(seen.Locks, lockSight{each.lockName(), h.token, name, max(0, time.Until(h.until).Milliseconds())})
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(seen)
}

// mostHolds is how many seats a visitor can hold at once. The limit is not exact, because it counts what the board knows: two
// windows at the same moment may get one seat more, which does no harm.
const mostHolds = 4

// errTooMany is the error for a visitor who already holds too many seats.
var errTooMany = errors.New("the visitor holds as many seats as one can")

func (s *server) hold(w http.ResponseWriter, r *http.Request) {
	where := seat(r.PathValue("seat"))
	s.act(w, r, []seat{where}, func(ctx context.Context, visitor string) (string, error) {
		if hall, _ := s.board.look(); hall.holds(visitor) >= mostHolds {
			return "", errTooMany
		}
		return fmt.Sprintf("%v is held for you.", where), s.desk.pick(ctx, visitor, where)
	})
}

func (s *server) release(w http.ResponseWriter, r *http.Request) {
	where := seat(r.PathValue("seat"))
	s.act(w, r, []seat{where}, func(ctx context.Context, visitor string) (string, error) {
		return fmt.Sprintf("You let %v go.", where), s.desk.letGo(ctx, visitor, where)
	})
}

func (s *server) pay(w http.ResponseWriter, r *http.Request) {
	var where []seat
	for name := range strings.SplitSeq(r.PathValue("seats"), ",") {
		where = append(where, seat(name))
	}
	slices.Sort(where)
	where = slices.Compact(where)
	s.act(w, r, where, func(ctx context.Context, visitor string) (string, error) {
		is := "is"
		if len(where) > 1 {
			is = "are"
		}
		return fmt.Sprintf("%s %s yours. You paid €%d. Your ticket code is %s. Enjoy the film!",
			list(where), is, price*len(where), ticketCode(visitor)), s.desk.pay(ctx, visitor, where...)
	})
}

// act does what a visitor asks for, and responds with the message for the visitor. If the visitor closes the page while a
// payment is under way, the payment still counts, so ctx does not end with the request.
func (s *server) act(w http.ResponseWriter, r *http.Request, where []seat, do func(ctx context.Context, visitor string) (string, error)) {
	guest := visitor(r)
	switch {
	case slices.ContainsFunc(where, func(s seat) bool { return !s.exists() }):
		http.NotFound(w, r)
		return
	case guest == "":
		answer(w, http.StatusUnauthorized, "This page needs a cookie to know you by. Allow it, and load the page again.")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.patient)
	defer cancel()
	done, err := do(as(ctx, guest), guest)
	s.board.announce(ctx)
	if err == nil {
		answer(w, http.StatusOK, done)
		return
	}
	status, text := refusal(err, where[0])
	if status == http.StatusServiceUnavailable {
		s.log.Error(r.URL.Path, "error", err)
	}
	answer(w, status, text)
}

// refusal returns the status and message for an error.
func refusal(err error, s seat) (status int, text string) {
	ended := lapsed{[]seat{s}}
	errors.As(err, &ended)
	switch {
	case errors.Is(err, errTaken):
		return http.StatusConflict, fmt.Sprintf("Another visitor was faster: %v is held for them. It may come free again.", s)
	case errors.Is(err, errSold):
		return http.StatusConflict, fmt.Sprintf("%v is sold.", s)
	case errors.Is(err, errTooMany):
		return http.StatusConflict, fmt.Sprintf("You hold %d seats, which is the most. Pay for one or let one go first.", mostHolds)
	case errors.Is(err, errNoHold):
		return http.StatusGone, fmt.Sprintf("Your hold of %s has ended, and nothing was paid. If it is free, pick it again.", list(ended.seats))
	}
	return http.StatusServiceUnavailable, "That did not work, and it is our fault. Please try again: nothing is paid twice."
}

// answer sends the message that the page shows the visitor.
func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": text})
}
