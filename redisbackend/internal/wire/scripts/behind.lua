-- behind.lua: the beginning of share, which the loader puts before common.lua. It handles the heartbeat of a session that has
-- no units and waits behind the head, as most sessions do if many wait: its place gets a new deadline, and nothing else
-- changes. To create the functions of the other files would take Redis longer than all of this. behind.lua changes nothing,
-- and the rest of share runs, if the request is no copy of the session's last epoch, if something may have ended since the
-- last run, if the head fits or is a try to be refused, if holders must be told to keep less, if tokens are ahead of the
-- clock, or if anything is an error.

-- behind returns the reply to such a heartbeat, nil to any other request.
local function behind()
  local mine = redis.pcall('HGET', KEYS[1], ARGV[1])
  if type(mine) ~= 'string' or string.sub(mine, 1, #ARGV[2] + 3) ~= ARGV[2] .. ' 0 ' then return nil end
  local raw = redis.call('HGET', KEYS[1], '=')
  local till, memory, under, order, wants, rest, grant = string.match(mine,
    '^%d+ 0 (%d+) (%d+) (0 %d+ %d+) (%d+) (%d+ %d+) %d+ ((%d+) %d+ %d+ %d+ %-?%d+ %d+ %d+)$')
  local kind, token, units, holders, sessions, soonest, first, told =
    string.match(raw or '', '^([rp]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) %d+ (%d+)$')
  if not grant or not told or kind ~= ARGV[3] or order == '0' or order == first then return nil end

  local t = redis.call('TIME')
  local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
  if now > tonumber(ARGV[15]) or now > tonumber(soonest) or now < tonumber(token) or now < tonumber(ARGV[11]) then return nil end

  local session = redis.call('HGET', KEYS[1], '#' .. first)
  local head = session and redis.call('HGET', KEYS[1], session)
  local has, limit, place, least, since, pending = string.match(head or '',
    '^%d+ (%d+) %d+ %d+ %d+ %d+ (%d+) (%d+) %d+ (%d+) %d+ %d+ %d+ %d+ (%d+) (%-?%d+) %d+ %d+$')
  limit, least = tonumber(limit), tonumber(least)
  if place ~= first or pending == '0' or least <= limit - (units - has) then return nil end
  local others = has == '0' and tonumber(holders) or holders - 1
  if others == 0 then return nil end
  local most = math.max(0, math.floor((limit - least) / others))
  if kind == 'p' and now - since > 10000 then most = 0 end -- GRACE
  if most < tonumber(told) then return nil end

  local ttl = redis.call('PTTL', KEYS[1])
  if ttl <= 0 then return nil end
  local deadline = now + ARGV[14] * 1000
  for i = 15, 16 do
    if tonumber(ARGV[i]) > tonumber(memory) then memory = ARGV[i] end
  end
  local needs = math.max(deadline + grant * 1000, tonumber(memory)) - now
  ttl = math.max(ttl, ARGV[18] * 1000, math.ceil(needs / 1000))
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl)) -- before HSET, as in save of sharing.lua
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' 0 ' .. till .. ' ' .. memory .. ' ' .. under .. ' ' .. order .. ' '
    .. wants .. ' ' .. string.format('%.0f', deadline) .. ' ' .. rest)
  local share = kind == 'p' and math.ceil(ARGV[7] / sessions) or 0
  return {1, now, 0, 1, 0, 0, most, share, tonumber(ARGV[2]), pending == '-1' and 0 or tonumber(first)}
end

if ARGV[4] == '0' and ARGV[5] ~= '0' then
  local reply = behind()
  if reply then return reply end
end
