-- key: reads or writes data that is fenced: tokens lower than the highest that was seen are refused.
--
-- KEYS  1 hash with the fields data and token (the highest that was seen)
-- ARGV  1 token   2 the new data; without it the data is only read
-- Returns  {token}         refused: the highest token, which is higher than ARGV[1]
--          {token, data}   the highest token now, and the data if it was read
-- Keeps    the token never falls. One command writes both fields, so a write that fails leaves both.
-- Twice    the second run does the same as the first, or is refused. A late copy of a write that comes after another write
--          under the same token undoes that one.
--
-- Tokens are below 2^53, so comparing them as numbers is exact. They are kept as the text they came as.

local seen = redis.call('HGET', KEYS[1], 'token')
if seen and tonumber(ARGV[1]) < tonumber(seen) then return {seen} end
if ARGV[2] then
	redis.call('HSET', KEYS[1], 'token', ARGV[1], 'data', ARGV[2])
	return {ARGV[1], ''}
end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return {ARGV[1], redis.call('HGET', KEYS[1], 'data') or ''}
