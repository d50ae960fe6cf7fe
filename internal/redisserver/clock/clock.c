// A clock that a test can set, for a server that is started with this library in LD_PRELOAD. Only the wall clock is
// another one; timers, which use the monotonic clock, are as they were. libfaketime cannot be used: it ends a server that
// is linked with jemalloc.
//
// The file that RELOCK_CLOCK names says what the clock shows: two settings, and which of them counts. A test writes the
// other one, and then that it counts from now on.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct setting {
	int64_t since; // real time, in microseconds
	int64_t ahead; // of real time then, in microseconds
	int64_t ppm;   // how much faster it runs since
};

struct file {
	volatile int64_t current;
	volatile struct setting settings[2];
};

static const struct file *file;

__attribute__((constructor)) static void load(void) {
	const char *name = getenv("RELOCK_CLOCK");
	if (!name) return;
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0) abort();
	void *at = mmap(NULL, sizeof(struct file), PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) abort();
	close(fd);
	file = at;
}

static int64_t nanoseconds(void) {
	struct timespec real;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
	int64_t now = (int64_t)real.tv_sec * 1000000000 + real.tv_nsec;
	if (!file) return now;
	volatile const struct setting *s = &file->settings[file->current & 1];
	return now + s->ahead * 1000 + (now / 1000 - s->since) * s->ppm / 1000;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	(void)tz;
	int64_t now = nanoseconds();
	tv->tv_sec = now / 1000000000;
	tv->tv_usec = now % 1000000000 / 1000;
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *ts) {
	if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return syscall(SYS_clock_gettime, clock, ts);
	int64_t now = nanoseconds();
	ts->tv_sec = now / 1000000000;
	ts->tv_nsec = now % 1000000000;
	return 0;
}

time_t time(time_t *to) {
	time_t now = nanoseconds() / 1000000000;
	if (to) *to = now;
	return now;
}
