package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"time"
)

//go:embed web
var web embed.FS

var pageTemplate = template.Must(template.ParseFS(web, "web/page.html"))

// A server is the web server of one replica.
type server struct {
	agent   *agent
	servers []string // addresses of all replicas
}

// handler returns the routes of the server.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("POST /conversations/{conversation}/turns", s.add)
	for _, file := range []string{"style.css", "page.js"} {
		mux.HandleFunc("GET /"+file, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, web, "web/"+file)
		})
	}
	return hardened(http.NewCrossOriginProtection().Handler(mux))
}

// hardened forbids browsers to load anything from other sites, and to show the page inside another.
func hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// A view is the data of the page. The turns come with the first event.
type view struct {
	Conversations []string
	Replicas      []viewReplica
	Number        int
	Steps         int
}

type viewReplica struct {
	Number  int
	Address string
	Here    bool
}

func (s *server) page(w http.ResponseWriter, _ *http.Request) {
	v := view{Conversations: conversations, Number: s.agent.replica, Steps: s.agent.steps}
	for i, address := range s.servers {
		v.Replicas = append(v.Replicas, viewReplica{Number: i + 1, Address: address, Here: i+1 == v.Number})
	}
	w.Header().Set("Cache-Control", "no-store")
	if err := pageTemplate.Execute(w, v); err != nil {
		s.agent.log.Warn("the page was not sent", "error", err)
	}
}

// Limits of a form: its size in bytes, and how long it may take to read.
const (
	mostBytes  = 4 << 10
	readWithin = 10 * time.Second
)

// add starts a turn, which outlives the request. If the form has the value stop, the running turn is asked to end.
func (s *server) add(w http.ResponseWriter, r *http.Request) {
	conversation := r.PathValue("conversation")
	if !slices.Contains(conversations, conversation) {
		http.NotFound(w, r)
		return
	}
	if s.agent.turns.Load() >= mostTurns {
		answer(w, http.StatusTooManyRequests, "Too many turns wait here. Please try again when some are done.")
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readWithin)) // a recorder in a test has no deadlines
	r.Body = http.MaxBytesReader(w, r.Body, mostBytes)
	err := r.ParseForm()
	if err == nil {
		err = r.ParseMultipartForm(mostBytes)
	}
	if err != nil && !errors.Is(err, http.ErrNotMultipart) {
		answer(w, http.StatusBadRequest, "That is no form, or too much for one.")
		return
	}
	t, err := s.agent.store.add(r.Context(), conversation, s.agent.replica, r.FormValue("stop") != "")
	if err != nil {
		s.agent.log.Error(r.URL.Path, "error", err)
		answer(w, http.StatusServiceUnavailable, "That did not work. Please try again.")
		return
	}
	s.agent.start(t)
	answer(w, http.StatusAccepted, fmt.Sprintf("Turn %d of conversation %s is in the queue.", t.Number, conversation))
}

// answer sends the message that the page shows the visitor.
func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": text})
}

// lookEvery is the interval at which the page is updated.
const lookEvery = 200 * time.Millisecond

// events sends the lanes, first at once and then whenever they change.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flusher := http.NewResponseController(w)
	var last []byte
	for {
		text, err := s.look(r.Context())
		if err != nil {
			s.agent.log.Warn("the turns could not be read; the page asks again", "error", err)
			return
		}
		if !bytes.Equal(text, last) {
			if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil || flusher.Flush() != nil {
				return // the page is closed
			}
			last = text
		}
		select {
		case <-time.After(lookEvery):
		case <-r.Context().Done():
			return
		}
	}
}

func (s *server) look(ctx context.Context) ([]byte, error) {
	lanes, err := s.agent.store.lanes(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(lanes)
}
