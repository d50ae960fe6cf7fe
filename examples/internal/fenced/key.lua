-- key: reads or writes a text that is fenced: tokens lower than the highest that was seen are refused.
--
-- KEYS  1 hash with the fields text and token (the highest that was seen)
-- ARGV  1 token   2 the new text; without it the text is only read
-- Returns  {text}   the text as it is now   {}   refused, nothing was changed
-- Twice    the second run does the same as the first, or is refused.
--
-- Tokens are below 2^53, so comparing them as numbers is exact. They are kept as the text they came as.

local seen = redis.call('HGET', KEYS[1], 'token')
if seen and tonumber(ARGV[1]) < tonumber(seen) then return {} end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
if ARGV[2] then redis.call('HSET', KEYS[1], 'text', ARGV[2]) end
return {redis.call('HGET', KEYS[1], 'text') or ''}
