-- Lets a holder in if there is room for it. It is what the plain polling read-write lock and semaphore of the benchmarks
-- ask again and again; they stand beside Relock for comparison and are no part of it.
--
-- KEYS[1]  sorted set: member -> when its lease ends, in ms of Redis's clock
-- ARGV[1]  the member: w… a writer, r… a reader, p… a permit
-- ARGV[2]  the lease in ms
-- ARGV[3]  how many others may be inside at most; none of them is a writer
--
-- Returns 1 if the member is inside, 0 if it is not.
-- A member leaves by ZREM. Twice: the second call finds the member inside and may return 0; members are used once.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
if first and (string.sub(first, 1, 1) == 'w' or redis.call('ZCARD', KEYS[1]) > tonumber(ARGV[3])) then
	return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
