package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/relock-go/relock/bench/internal/contender"
	"github.com/relock-go/relock/bench/internal/workload"
)

// options are the command line.
type options struct {
	redis      string
	ioThreads  int
	rounds     int
	duration   time.Duration
	quick      bool
	readme     bool
	out        string
	contenders []contender.Contender
	workloads  []workload.Workload
}

// The defaults. Three rounds are enough for a median, and a second is long compared with one section of any contender. A quick
// look only shows that everything works.
const (
	fullRounds, quickRounds     = 3, 1
	fullDuration, quickDuration = time.Second, 200 * time.Millisecond
	minDuration                 = 50 * time.Millisecond
)

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var only, workloads string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.redis, "redis", "", "`URL` of a Redis that does nothing else meanwhile; default: start a redis-server")
	flags.IntVar(&o.ioThreads, "io-threads", 1, "threads of the redis-server that is started")
	flags.IntVar(&o.rounds, "rounds", 0, fmt.Sprintf("rounds, of which medians are shown (default %d; %d with -quick)", fullRounds, quickRounds))
	flags.DurationVar(&o.duration, "duration", 0, fmt.Sprintf("of one measurement (default %v; %v with -quick)", fullDuration, quickDuration))
	flags.BoolVar(&o.quick, "quick", false, "a first look")
	flags.StringVar(&only, "only", "", "contenders, separated by commas: "+strings.Join(names(contender.All(), nameOfContender), " "))
	flags.StringVar(&workloads, "workloads", "", "workloads, separated by commas: "+strings.Join(names(workload.All, nameOfWorkload), " "))
	flags.StringVar(&o.out, "out", "bench/report", "`folder` of the report")
	flags.BoolVar(&o.readme, "readme", false, "measure nothing; write README.md's part and "+published+" from the report in -out")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag; see -help", flags.Arg(0))
	}
	o.defaults()
	return o, errors.Join(o.choose(only, workloads), o.check())
}

func (o *options) defaults() {
	rounds, duration := fullRounds, fullDuration
	if o.quick {
		rounds, duration = quickRounds, quickDuration
	}
	if o.rounds == 0 {
		o.rounds = rounds
	}
	if o.duration == 0 {
		o.duration = duration
	}
}

func (o *options) check() error {
	switch {
	case o.rounds < 0:
		return fmt.Errorf("-rounds %d: at least 1", o.rounds)
	case o.duration < minDuration:
		return fmt.Errorf("-duration %v: at least %v", o.duration, minDuration)
	case o.ioThreads < 1:
		return fmt.Errorf("-io-threads %d: at least 1", o.ioThreads)
	case o.ioThreads > 1 && o.redis != "":
		return errors.New("-io-threads is for the redis-server that is started, not for -redis")
	case o.out == "":
		return errors.New("-out needs a folder")
	}
	return nil
}

// choose returns the named contenders and workloads. Without names it returns all except the seeded fault and the contenders
// that cannot run on this machine. It leaves out workloads that none of the contenders can do.
func (o *options) choose(only, workloads string) error {
	var err, err2 error
	for _, c := range contender.All() {
		if !c.Fault && (c.Missing == nil || c.Missing() == "") {
			o.contenders = append(o.contenders, c)
		}
	}
	if only != "" {
		o.contenders, err = find("contender", only, contender.Find)
	}
	o.workloads = workload.All
	if workloads != "" {
		o.workloads, err2 = find("workload", workloads, workload.Find)
	}
	o.workloads = slices.DeleteFunc(slices.Clone(o.workloads), func(w workload.Workload) bool {
		return !slices.ContainsFunc(o.contenders, func(c contender.Contender) bool { return c.Fits(w) })
	})
	return errors.Join(err, err2)
}

func find[T any](kind, list string, find func(string) (T, bool)) ([]T, error) {
	var found []T
	for name := range strings.SplitSeq(list, ",") {
		one, ok := find(strings.TrimSpace(name))
		if !ok {
			return nil, fmt.Errorf("no %s is named %q; see -help", kind, name)
		}
		found = append(found, one)
	}
	return found, nil
}

func names[T any](all []T, name func(T) string) []string {
	var list []string
	for _, one := range all {
		list = append(list, name(one))
	}
	return list
}

func nameOfContender(c contender.Contender) string { return c.Name }
func nameOfWorkload(w workload.Workload) string    { return w.Name }
