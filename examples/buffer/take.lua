-- take: a consumer's step. The first item leaves the buffer and stands among those taken in one run. Which item that is
-- the consumer says, which looked and has used it: that it still is the first, only the lock guarantees.
--
-- KEYS  1 book  2 items  3 taken
-- ARGV  1 token  2 item  3 process that takes it
-- Returns  OK
-- Keeps    an item is in the buffer or among those taken, never in both or in neither.
-- Twice    would take the next item in its place: a caller that does not know whether it was done looks again, under a new hold.

local stale = fenced(KEYS[1], ARGV[1])
if stale then return stale end
redis.call('LPOP', KEYS[2])
redis.call('RPUSH', KEYS[3], ARGV[2] .. ' ' .. ARGV[3])
return redis.status_reply('OK')
