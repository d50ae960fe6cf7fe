package relockgocron_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/relock-go/relock/adapters/relockgocron"
	"github.com/relock-go/relock/redisbackend/redistest"
	"github.com/relock-go/relock/reentrant"
)

// schedule runs a report again and again, each time in one of the processes that call it.
func schedule(session *reentrant.Session, every time.Duration, report func(ctx context.Context) error) (gocron.Scheduler, error) {
	locker := relockgocron.NewLocker(session, every/10) // the clocks of the processes may differ by a tenth
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return nil, err
	}
	_, err = scheduler.NewJob(gocron.DurationJob(every), gocron.NewTask(report), gocron.WithName("report")) // the lock's name
	if err != nil {
		return nil, errors.Join(err, scheduler.Shutdown())
	}
	scheduler.Start()
	return scheduler, nil
}

func ExampleNewLocker() {
	redis, err := redistest.New()
	if err != nil {
		panic(err)
	}
	defer redis.Close()
	session, err := reentrant.NewSession(redis.Backend())
	if err != nil {
		panic(err)
	}
	defer session.Close(context.Background())
	reported := make(chan struct{})
	once := sync.OnceFunc(func() { close(reported) })
	scheduler, err := schedule(session, 10*time.Millisecond, func(context.Context) error {
		once()
		return nil
	})
	if err != nil {
		panic(err)
	}
	<-reported
	fmt.Println("reported:", scheduler.Shutdown())
	// Output: reported: <nil>
}
