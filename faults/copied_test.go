package faults

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/redisbackend/redistest"
)

// A dataset is what a server had at some time, as a replica has it.
type dataset struct {
	at   time.Time
	keys []copiedKey
}

type copiedKey struct {
	name, kind string
	left       time.Duration // until the key expires; negative if it does not expire
	values     []string
}

var (
	copyAll = rueidis.NewLuaScript(`
		local all = {}
		for i, key in ipairs(redis.call('KEYS', '*')) do
			local kind, values = redis.call('TYPE', key).ok, nil
			if kind == 'string' then values = { redis.call('GET', key) }
			elseif kind == 'hash' then values = redis.call('HGETALL', key)
			elseif kind == 'list' then values = redis.call('LRANGE', key, 0, -1)
			elseif kind == 'zset' then values = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
			else error(kind) end
			all[i] = { key, kind, redis.call('PTTL', key), values }
		end
		return all`)
	restoreAll = rueidis.NewLuaScript(`
		redis.call('FLUSHALL')
		local i = 1
		while ARGV[i] do
			local key, kind, left, n = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
			for j = i + 4, i + 3 + n do
				if kind == 'string' then redis.call('SET', key, ARGV[j])
				elseif kind == 'list' then redis.call('RPUSH', key, ARGV[j])
				elseif kind == 'hash' and (j - i) % 2 == 0 then redis.call('HSET', key, ARGV[j], ARGV[j + 1])
				elseif kind == 'zset' and (j - i) % 2 == 0 then redis.call('ZADD', key, ARGV[j + 1], ARGV[j]) end
			end
			if left > 0 then redis.call('PEXPIRE', key, ARGV[i + 2]) end
			i = i + 4 + n
		end
		return 'OK'`)
)

// copied returns what a server has now.
func copied(t *testing.T, server *redistest.Server) dataset {
	all, err := copyAll.Exec(t.Context(), server.Client(), nil, nil).ToArray()
	require.NoError(t, err)
	d := dataset{at: time.Now()}
	for _, each := range all {
		parts, err := each.ToArray()
		require.NoError(t, err)
		key := copiedKey{}
		key.name, err = parts[0].ToString()
		require.NoError(t, err)
		key.kind, err = parts[1].ToString()
		require.NoError(t, err)
		left, err := parts[2].AsInt64()
		require.NoError(t, err)
		key.left = time.Duration(left) * time.Millisecond
		key.values, err = parts[3].AsStrSlice()
		require.NoError(t, err)
		d.keys = append(d.keys, key)
	}
	return d
}

// restore makes a server have the data of d again, except keys that have expired by now.
func (d dataset) restore(t *testing.T, server *redistest.Server) {
	var words []string
	for _, key := range d.keys {
		left := key.left
		if left >= 0 {
			left -= time.Since(d.at)
			if left < time.Millisecond {
				continue
			}
		}
		words = append(words, key.name, key.kind, strconv.FormatInt(left.Milliseconds(), 10), strconv.Itoa(len(key.values)))
		words = append(words, key.values...)
	}
	require.NoError(t, restoreAll.Exec(t.Context(), server.Client(), nil, words).Error())
}

// If a copy lacked something, failovers to it would be harmless.
func TestACopyOfAServerIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redistest.InBubble(t)
		c := server.Client()
		do := func(words ...string) {
			require.NoError(t, c.Do(t.Context(), c.B().Arbitrary(words...).Build()).Error())
		}
		do("SET", "string", "a\x00b")
		do("HSET", "hash", "one", "1", "two", "")
		do("RPUSH", "list", "c", "a", "b")
		do("ZADD", "sorted", "1732377600123456", "a", "2", "b")
		do("PEXPIRE", "hash", "90000")
		do("PEXPIRE", "list", "30000")
		before := copied(t, server)
		do("SET", "string", "c")
		do("DEL", "sorted")
		do("SET", "new", "d")
		time.Sleep(time.Minute)
		before.restore(t, server)
		after := copied(t, server)

		byName := make(map[string]copiedKey)
		for _, key := range after.keys {
			byName[key.name] = key
		}
		want := make(map[string]copiedKey)
		for _, key := range before.keys {
			if key.name != "list" {
				want[key.name] = key
			}
		}
		hash := want["hash"]
		hash.left -= time.Minute
		want["hash"] = hash
		assert.Equal(t, want, byName)
	})
}
