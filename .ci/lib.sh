# shellcheck shell=bash
# What the stages share: installing what is missing, and starting servers. A stage begins with
#
#   . "$(dirname "$0")/../lib.sh"
#
# That takes it to the repository's root and gives it a temporary folder, $scratch. When the stage ends, the servers that
# it started are stopped and the folder is removed. Servers listen on free loopback ports, with their data in $scratch.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck disable=SC2034 # stages use it
readonly patience=30m # the time limit of one package's tests; all packages take a minute on two idle cores

scratch=$(mktemp -d -t relock-ci.XXXXXX)
chmod 711 "$scratch" # the database servers run as users of their own
export TMPDIR=$scratch
export CI=true REENTRANT_REDIS_REQUIRED=1 # what is missing is a failure, and never skipped
export RELOCK_TOPOLOGIES=1                # only stage test leaves them out
servers=()                                # their process ids

# finish stops what was started here, and leaves nothing behind.
finish() {
	local pid
	for pid in "${servers[@]}"; do
		kill -INT "$pid" 2>/dev/null || true  # what makes PostgreSQL stop at once
		kill -TERM "$pid" 2>/dev/null || true # what the others listen to
		wait "$pid" 2>/dev/null || true
	done
	rm -rf "$scratch"
}
trap finish EXIT

# ---------------------------------------------------------------- what is missing

# need PACKAGE FILE… installs a package of Debian, unless one of the files is there.
need() {
	local package=$1
	shift
	if present "$@"; then return; fi
	if [[ $(id -u) != 0 ]]; then
		echo "$package is missing: install it, or run this as root" >&2
		return 1
	fi
	( # one stage at a time: apt does not wait for another apt
		flock 9
		if present "$@"; then exit; fi
		echo "installing $package"
		if ! install "$package" && ! { update && install "$package"; }; then
			tail -n 30 "$scratch/apt.log"
			exit 1
		fi
	) 9<.ci/lib.sh
}

# present FILE… reports whether one of the files, which may be patterns, is there.
present() {
	local file
	for file; do
		if compgen -G "$file" >/dev/null; then return; fi
	done
	return 1
}

install() {
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends "$1" \
		>"$scratch/apt.log" 2>&1 9<&-
}

update() { apt-get update -qq -o Acquire::Retries=3 9<&-; }

need_git() { need git /usr/bin/git /usr/local/bin/git; }

need_redis() { need redis-server /usr/bin/redis-server /usr/local/bin/redis-server; }

need_browser() { need chromium /usr/bin/chromium /usr/bin/chromium-browser; }

# need_compiler installs a C compiler, for the race detector and for servers whose clock can be set.
need_compiler() {
	need gcc /usr/bin/gcc /usr/bin/cc
	need libc6-dev '/usr/include/*/gnu/stubs*.h' /usr/include/stdlib.h
}

need_java() {
	need openjdk-17-jdk-headless /usr/bin/javac /usr/local/bin/javac
	need maven /usr/bin/mvn /usr/local/bin/mvn
}

# ---------------------------------------------------------------- servers

# start_redis starts a Redis and sets redis_url.
start_redis() {
	need_redis
	launch_redis redis-server redis
	# shellcheck disable=SC2034 # stages use it
	redis_url=$launched
}

# launch_redis PROGRAM NAME starts a server program of the Redis family and sets launched to its URL. Another stage may
# choose the same port at the same moment: then the program ends, and is started on another one.
launch_redis() {
	local program=$1 port data tries
	data=$(folder root "$2")
	for tries in 1 2 3; do
		port=$(free_port)
		"$program" --bind 127.0.0.1 --port "$port" --dir "$data" --save '' --appendonly no </dev/null >"$data/log" 2>&1 &
		servers+=($!)
		if await "$program, try $tries," "$data/log" redis_is "$port" $!; then
			launched=redis://127.0.0.1:$port
			return
		fi
		kill $! 2>/dev/null || true
		unset 'servers[-1]'
	done
	return 1
}

# redis_is PORT PID reports whether the server that listens on a port is a process of this stage.
redis_is() { [[ $(redis-cli -h 127.0.0.1 -p "$1" info server) == *"process_id:$2"[!0-9]* ]]; }

# start_mariadb starts a MariaDB and sets mariadb_url, and mariadb_dsn as its driver wants it.
start_mariadb() {
	need mariadb-server /usr/sbin/mariadbd
	local port data
	port=$(free_port)
	data=$(folder mysql mariadb)
	(as mysql "$data" mariadb-install-db --no-defaults --datadir="$data/files" --skip-test-db \
		--auth-root-authentication-method=normal)
	# Nothing here outlives the stage, so no statement need wait for the disk.
	as mysql "$data" mariadbd --no-defaults --datadir="$data/files" --socket="$data/socket" --pid-file="$data/pid" \
		--bind-address=127.0.0.1 --port="$port" --skip-name-resolve --innodb-flush-log-at-trx-commit=0 &
	servers+=($!)
	local client=(--no-defaults --socket="$data/socket" --user=root)
	await mariadbd "$data/log" mariadb-admin "${client[@]}" ping
	mariadb "${client[@]}" --execute="CREATE DATABASE keygen; CREATE USER keygen@127.0.0.1 IDENTIFIED BY 'keygen';
		GRANT ALL ON keygen.* TO keygen@127.0.0.1"
	# shellcheck disable=SC2034 # stages use them
	mariadb_url=mysql://keygen:keygen@127.0.0.1:$port/keygen mariadb_dsn="keygen:keygen@tcp(127.0.0.1:$port)/keygen"
}

# start_postgres starts a PostgreSQL and sets postgres_url.
start_postgres() {
	need postgresql '/usr/lib/postgresql/*/bin/postgres'
	local port data bin
	port=$(free_port)
	data=$(folder postgres postgres)
	bin=$(compgen -G '/usr/lib/postgresql/*/bin' | sort -V | tail -n 1)
	(as postgres "$data" "$bin/initdb" --pgdata="$data/files" --username=keygen --auth=trust --no-sync)
	as postgres "$data" "$bin/postgres" -D "$data/files" -k "$data" -p "$port" -c listen_addresses=127.0.0.1 \
		-c fsync=off &
	servers+=($!)
	await postgres "$data/log" "$bin/pg_isready" -h "$data" -p "$port"
	# shellcheck disable=SC2034 # stages use it
	postgres_url=postgres://keygen@127.0.0.1:$port/postgres
}

# folder USER NAME makes a folder for a server's data and prints it.
folder() {
	mkdir -p "$scratch/$2"
	if [[ $(id -u) == 0 ]]; then chown "$1" "$scratch/$2"; fi
	echo "$scratch/$2"
}

# free_port prints a loopback port on which no process listens.
free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
			echo "$port"
			return
		fi
	done
}

# as USER FOLDER COMMAND… replaces the shell by a command that runs as another user (as the present one where that is not
# allowed), in its own folder, where its log is. To be used in a subshell or in the background.
as() {
	local user=$1 data=$2
	shift 2
	cd "$data"
	export TMPDIR=$data
	exec </dev/null >>"$data/log" 2>&1
	if [[ $(id -u) == 0 ]]; then
		exec setpriv --reuid="$user" --regid="$user" --init-groups "$@"
	fi
	exec "$@"
}

# await NAME LOG COMMAND… waits until the command succeeds, for as long as the server that was started last lives.
await() {
	local name=$1 log=$2 i
	shift 2
	for ((i = 0; i < 1800; i++)); do
		if "$@" >/dev/null 2>&1; then return; fi
		kill -0 "${servers[-1]}" 2>/dev/null || break
		sleep 0.1
	done
	echo "$name did not start:" >&2
	tail -n 20 "$log" >&2
	return 1
}

# ---------------------------------------------------------------- commands

# must_fail PATTERN COMMAND… runs a command that must notice that something is wrong: it ends with status 1, and prints a
# line that matches.
must_fail() {
	local pattern=$1 output=$scratch/must-fail.txt status=0
	shift
	"$@" >"$output" || status=$?
	cat "$output"
	if [[ $status != 1 ]] || ! grep -Eq "$pattern" "$output"; then
		echo "$*: exit status $status, expected 1 and a line that matches $pattern"
		return 1
	fi
}
