-- look: reads what a worker needs to know before its step.
--
-- KEYS  1 book  2 items  3 taken
-- ARGV  1 token  2 producer, of any number for a consumer
-- Returns  {items in the buffer, the first of them or 0, items that the producer has put, items taken by all}
-- Keeps    from now on an earlier hold changes nothing, so what was read stays true as long as the hold lasts.
-- Twice    changes nothing more.

local stale = fenced(KEYS[1], ARGV[1])
if stale then return stale end
return {
  redis.call('LLEN', KEYS[2]),
  tonumber(redis.call('LINDEX', KEYS[2], 0) or '0'),
  tonumber(redis.call('HGET', KEYS[1], 'made:' .. ARGV[2]) or '0'),
  redis.call('LLEN', KEYS[3]),
}
