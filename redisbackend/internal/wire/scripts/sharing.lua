-- sharing.lua: how the units of a shared name are given out, for the scripts that give some. It follows shared.lua.

local now, s, kind, channel -- the script sets them: the time, what shared() has read, its kind and the channel prefix

-- beyond is far for the even tokens of a shared name.
local function beyond(n, above)
  return far({last = s.token}, now, 2 * math.max(tonumber(n), 1), above)
end

-- clear takes a session's place away.
local function clear(e)
  e.order, e.want, e.least, e.deadline, e.grant, e.tokens, e.seen = 0, 0, 0, 0, '0', '0', '0'
  e.dirty = true
end

-- settle writes down as gone: units past their lease, and places past their deadline.
local function settle()
  for _, e in ipairs(s.list) do
    if e.units > 0 and now > e.till then e.units, e.first, e.dirty = 0, 0, true end
    if e.order > 0 and now > e.deadline then clear(e) end
  end
end

local function head()
  local first
  for _, e in ipairs(s.list) do
    if e.order > 0 and (not first or e.order < first.order) then first = e end
  end
  return first
end

-- count returns how many units the others have, how many others have some, how many others have units or a place, and
-- how many of them have a place.
local function count(me)
  local units, holders, sessions, places = 0, 0, 0, 0
  for _, e in ipairs(s.list) do
    if e ~= me then
      units = units + e.units
      if e.units > 0 then holders = holders + 1 end
      if e.order > 0 then places = places + 1 end
      if e.units > 0 or e.order > 0 then sessions = sessions + 1 end
    end
  end
  return units, holders, sessions, places
end

local function prolong(e, us)
  e.till = math.max(e.till, now + us)
  e.memory = math.max(e.memory, e.till)
  e.dirty = true
end

local function even(token)
  return token + token % 2
end

-- draw takes a new block of tokens, as issue does, and returns its first.
local function draw(n, above)
  local first = even(math.max(s.token + 2, now, above + 2))
  local horizon = now + HORIZON
  s.token = math.max(first, math.min(first + 2 * (n - 1), horizon - horizon % 2))
  return first
end

-- give lets a session have units: a writer under new tokens, all others under the last one. If a reader has seen a higher
-- one, Redis forgot a write, and there is a new last one.
local function give(e, units, n, above)
  local had = e.units
  e.units, e.dirty = units, true
  if kind == 'r' and units == ALL then
    e.first = draw(tonumber(n), tonumber(above))
  else
    if s.token == 0 or kind == 'r' and tonumber(above) > s.token then draw(1, tonumber(above)) end
    e.first = s.token
  end
  if had == 0 then e.under = e.first end
end

-- line returns the sessions that have a place, in their order, and how many units and sessions with either there are.
local function line()
  local places, units, sessions = {}, 0, 0
  for _, e in ipairs(s.list) do
    units = units + e.units
    if e.order > 0 then places[#places + 1] = e end
    if e.units > 0 or e.order > 0 then sessions = sessions + 1 end
  end
  table.sort(places, function(a, b) return a.order < b.order end)
  return places, units, sessions
end

-- serve grants heads what they want for as long as they fit, and returns them, except me: the caller gets a full lease.
-- It looks at each session once: thousands can be served in one run.
local function serve(me, lease)
  local granted = {}
  local places, units, sessions = line()
  for i, first in ipairs(places) do
    local free = first.limit - (units - first.units)
    if first.least > free or beyond(first.tokens, first.seen) then break end
    local n = math.min(first.want, free)
    if kind == 'p' and i < #places then
      n = math.min(n, math.max(first.least, math.floor(first.limit / sessions)))
    end
    units = units + n - first.units
    local ttl, wanted, above = tonumber(first.grant) * 1000, first.tokens, first.seen
    clear(first)
    give(first, n, wanted, above)
    if first == me then
      prolong(me, lease)
    else
      prolong(first, ttl)
      granted[#granted + 1] = first
    end
  end
  return granted
end

-- allowance returns a function that computes what a session may keep so that the head fits.
local function allowance()
  local first, most = head(), ALL
  if first then
    local _, holders, sessions = count(first)
    local goal = first.least
    if kind == 'p' then
      goal = math.max(goal, math.min(first.want, math.floor(first.limit / (sessions + 1))))
    end
    if holders > 0 then most = math.max(0, math.floor((first.limit - goal) / holders)) end
  end
  return function(e)
    return e == first and ALL or most
  end
end

-- many runs a command on a key with more arguments than Lua can hand over at once. Fields and their values stay together.
local function many(command, key, arguments)
  for i = 1, #arguments, 4000 do
    redis.call(command, key, unpack(arguments, i, math.min(i + 3999, #arguments)))
  end
end

-- save writes what has changed, and keeps the record for so many seconds at least. An entry whose memory is over is
-- deleted, but for mine. A key that is there is first written to by a command that a full server allows: it then allows
-- the next ones too, and what is kept or given back needs no memory.
local function save(key, me, seconds)
  local lasts = now + tonumber(seconds) * 1000000 + math.max(0, math.min(s.token - now, FARTHEST))
  local changes, over = {'=', kind .. ' ' .. text(s.token)}, {}
  for _, e in ipairs(s.list) do
    if e.units == 0 and e.order == 0 and now > e.memory and e ~= me then
      over[#over + 1] = e.session
    else
      lasts = math.max(lasts, e.till, e.memory, e.order > 0 and e.deadline + tonumber(e.grant) * 1000 or 0)
      if e.dirty then changes[#changes + 1], changes[#changes + 2] = e.session, write(e) end
    end
  end
  local left = redis.call('PTTL', key)
  local ttl = text(math.max(left, math.ceil((lasts - now) / 1000)))
  if left > 0 then redis.call('PEXPIRE', key, ttl) end
  many('HSET', key, changes)
  if left <= 0 then redis.call('PEXPIRE', key, ttl) end
  many('HDEL', key, over)
end

-- announce sends messages to the granted sessions, and to those that have more than they may keep. The caller learns
-- both from the reply.
local function announce(hold, me, granted, may)
  local told = {}
  for _, e in ipairs(granted) do
    told[e] = true
    tell(channel, e.session, hold, string.format('h %s %.0f %.0f %.0f %.0f %.0f %.0f ', e.epoch, e.units, e.first,
      kind == 'r' and e.units == ALL and s.token or e.first, may(e), e.till, now) .. hold)
  end
  for _, e in ipairs(s.list) do
    if e ~= me and not told[e] and e.units > may(e) then
      tell(channel, e.session, hold, 'x ' .. text(may(e)) .. ' ' .. hold)
    end
  end
end
