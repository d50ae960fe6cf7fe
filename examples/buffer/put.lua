-- put: a producer's step. The item and the producer's progress change together, or not at all.
--
-- KEYS  1 book  2 items
-- ARGV  1 token  2 producer  3 item
-- Returns  OK
-- Keeps    a producer that starts again, in another process too, finds in the book how many of its items are there.
-- Twice    would put the item twice: a caller that does not know whether it was done looks again, under a new hold.

local stale = fenced(KEYS[1], ARGV[1])
if stale then return stale end
local length = redis.call('RPUSH', KEYS[2], ARGV[3])
redis.call('HINCRBY', KEYS[1], 'made:' .. ARGV[2], 1)
if length > tonumber(redis.call('HGET', KEYS[1], 'fullest') or '0') then
  redis.call('HSET', KEYS[1], 'fullest', length)
end
return redis.status_reply('OK')
