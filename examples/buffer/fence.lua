-- fence: stands before each of the other scripts.
--
-- fenced(book, token) notes the token of a hold, and answers an error if a later hold has looked at the buffer or
-- changed it already: then the caller's hold is over, whatever the caller believes, and nothing may be changed. Token 0
-- is a job without a lock.
local function fenced(book, token)
  local last = tonumber(redis.call('HGET', book, 'fence') or '0')
  if tonumber(token) < last then return redis.error_reply('STALE a later hold was here') end
  redis.call('HSET', book, 'fence', token)
end
