-- redisson.lua: what the scripts share when Redisson's clients use the same locks, behind common.lua. It runs nothing by
-- itself. Its calls are in lines that begin with --redisson, which are comments for every other deployment.

-- freed wakes the waiting threads of Redisson when the lock is free, as its own clients do, with a "0" on this channel.
-- In a Cluster they listen by SSUBSCRIBE or by SUBSCRIBE, as they are configured.
local function freed(hold)
  local channel = string.find(hold, '{', 1, true) and hold or '{' .. hold .. '}'
  if SHARDED then redis.pcall('SPUBLISH', 'redisson_lock__channel:' .. channel, '0') end
  redis.pcall('PUBLISH', 'redisson_lock__channel:' .. channel, '0')
end
