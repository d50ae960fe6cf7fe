-- sharing.lua: how the units of a shared name are given out, for the scripts that give units. It follows shared.lua.
--
-- A run reads the summary, the caller's entry and the head's. It reads all entries only when something can have expired,
-- and to send messages to the sessions that have units.

local NEVER = 9007199254740991
local SWEEP = 5000000  -- us: how late an empty entry may be deleted, so that a run can delete several together
local GRACE = 10000    -- us: for how long a semaphore's head leaves the other sessions a share
local IDLE = 30        -- s: for how long the name of a Lock that is not in use keeps its kind

-- The script sets the first three: the record's key, the hold key's name and the channel prefix. open sets the others:
-- the caller's session, the time and the summary.
local key, hold, channel, caller, now, s
local entries, places = {}, {} -- what was read or changed: entries by session, sessions by order
local dirty, gone = {}, {}     -- entries to write, fields to delete
local left = false             -- whether a place went without a grant, or asks for less than before
local lapsed = false           -- whether the place of a head that has units has ended: a head is not told what it may keep

-- disused returns the last token of a Lock that no session has or waits for, whose record was not written for IDLE seconds
-- and has no live tombstone; nil if the name is anything else. holdkey and queue are the Lock's keys.
local function disused(holdkey, queue)
  local raw = redis.pcall('GET', key)
  local rec = type(raw) == 'string' and record(raw)
  if not rec or rec.err or entombed(rec, caller, 0, now) or rec.tombs ~= '' then return nil end
  local ttl = redis.call('PTTL', key)
  if ttl < 0 or ttl > (retention(rec, now) - IDLE) * 1000 then return nil end
  return redis.call('EXISTS', holdkey, queue) == 0 and rec.last or nil
end

-- open reads the summary and one session's entry. If the name is in use as something else, or cannot be read, it returns an
-- error, and nothing is changed. If queue is given, it takes the name of a Lock that is disused: tokens go on rising, and
-- late copies of the Lock's commands find another kind.
local function open(kind, session, holdkey, queue)
  caller, now = session, clock()
  local raw = redis.pcall('HGET', key, '=')
  if type(raw) == 'table' then
    if not string.find(raw.err, 'WRONGTYPE', 1, true) then return raw end
    local token = queue and disused(holdkey, queue)
    if not token then return wrong() end
    s = {kind = kind, token = token + 2 - token % 2, units = 0, holders = 0, sessions = 0, soonest = NEVER, first = 1, last = 0,
      told = ALL, began = 1, replaces = true}
    entries[session] = false
    return nil
  end
  local taken = holdkey and redis.call('PTTL', holdkey) ~= -2
  if raw then
    local mine = redis.call('HGET', key, session)
    local letter, token, units, holders, sessions, soonest, first, last, told = string.match(raw, SUMMARY)
    s = {kind = letter, token = tonumber(token), units = tonumber(units), holders = tonumber(holders),
      sessions = tonumber(sessions), soonest = tonumber(soonest), first = tonumber(first), last = tonumber(last),
      told = tonumber(told), began = tonumber(first)}
    entries[session] = mine and read(session, mine)
    if letter ~= kind or mine and not entries[session] or taken and s.holders == 0 then return wrong() end
    return nil
  end
  s = {kind = kind, token = 0, units = 0, holders = 0, sessions = 0, soonest = NEVER, first = 1, last = 0, told = ALL,
    began = 1}
  entries[session] = false
  if taken or redis.call('EXISTS', key) == 1 then return wrong() end
end

local function entry(session)
  local e = entries[session]
  if e == nil then
    local raw = redis.call('HGET', key, session)
    e = raw and read(session, raw) or false
    entries[session] = e
  end
  return e
end

-- everyone reads all entries, and returns them.
local function everyone()
  local all, raw = {}, redis.call('HGETALL', key)
  for i = 1, #raw, 2 do
    local session = raw[i]
    if session ~= '=' and not isplace(session) then
      if entries[session] == nil then entries[session] = read(session, raw[i + 1]) or false end
      all[#all + 1] = entries[session] or nil
    end
  end
  return all
end

local function mark(e)
  if not e.dirty then dirty[#dirty + 1], e.dirty = e, true end
end

-- count adds an entry to the totals if sign is 1, and takes it out of them if sign is -1.
local function count(e, sign)
  s.units = s.units + sign * e.units
  if e.units > 0 then s.holders = s.holders + sign end
  if e.units > 0 or e.order > 0 then s.sessions = s.sessions + sign end
end

-- change sets what a session has, and its place.
local function change(e, units, order)
  count(e, -1)
  e.units, e.order = units, order
  count(e, 1)
  mark(e)
end

-- vacate takes a session's place away.
local function vacate(e)
  if e.order == 0 then return end
  gone[#gone + 1] = '#' .. text(e.order)
  change(e, e.units, 0)
  e.want, e.least, e.deadline, e.grant, e.tokens, e.seen, e.since, e.pending = 0, 0, 0, '0', '0', '0', 0, -1
end

-- leave takes a session's place away without a grant.
local function leave(e)
  left = left or e.order > 0
  vacate(e)
end

-- head returns the first entry in the queue, nil if there is none. It skips the places of those that left.
local function head()
  while s.first <= s.last do
    local session = places[s.first] or redis.call('HGET', key, '#' .. text(s.first))
    local e = session and entry(session)
    if e and e.order == s.first then return e end
    s.first = s.first + 1
  end
end

-- recount counts the sessions that have not answered the try that is the head.
local function recount(all)
  local first = head()
  if not first or first.pending < 0 then return end
  first.pending = 0
  mark(first)
  for _, e in ipairs(all) do
    if e.asked == first.order and e.units > 0 then first.pending = first.pending + 1 end
  end
end

-- ends notes the time at which a lease, a place or an empty entry ends.
local function ends(at)
  s.soonest = math.min(s.soonest, at)
end

-- expire writes off what has ended of an entry: units past their lease, a place past its deadline, and an empty entry past
-- its memory. The argument was is the head from before settle.
local function expire(e, was)
  if e.units > 0 and now > e.till then
    change(e, 0, e.order)
    e.first, e.asked = 0, 0
  end
  if e.order > 0 and now > e.deadline then
    lapsed = lapsed or e == was and e.units > 0
    leave(e)
  end
  if e.units > 0 then ends(e.till) end
  if e.order > 0 then ends(e.deadline) end
  if e.units > 0 or e.order > 0 or e.session == caller then return end -- share.lua notes when the caller's entry ends
  if now > e.memory then
    gone[#gone + 1], gone[#gone + 2], entries[e.session] = e.session, notefield(e.session), false
  else
    ends(e.memory + SWEEP)
  end
end

-- settle looks at all entries if something can have ended, and counts anew.
local function settle()
  if now <= s.soonest then return end
  local all, was = everyone(), head()
  s.units, s.holders, s.sessions, s.soonest = 0, 0, 0, NEVER
  for _, e in ipairs(all) do count(e, 1) end
  for _, e in ipairs(all) do expire(e, was) end
  recount(all)
end

-- prolong gives the units of an entry a lease of so many us from now on, unless it has a longer one.
local function prolong(e, us)
  e.till = math.max(e.till, now + us)
  ends(e.till)
  mark(e)
end

-- beyond does what far of common.lua does, for the even tokens of a shared name.
local function beyond(n, above)
  return far({last = s.token}, now, 2 * math.max(tonumber(n), 1), above)
end

local function even(token)
  return token + token % 2
end

-- draw takes a new block of n tokens, as issue of common.lua does, and returns the first. Its argument above is a token that all
-- of them exceed.
local function draw(n, above)
  local first = even(math.max(s.token + 2, now, above + 2))
  local horizon = now + HORIZON
  s.token = math.max(first, math.min(first + 2 * (n - 1), horizon - horizon % 2))
  return first
end

-- give lets a session have units: a writer under new tokens, all others under the last token. If a reader has seen a higher
-- token, Redis forgot a write, and give draws a new last token.
local function give(e, units, n, above)
  local had = e.units
  change(e, units, e.order)
  e.got = text(now)
  if s.kind == 'r' and units == ALL then
    e.first = draw(tonumber(n), tonumber(above))
  else
    if s.token == 0 or s.kind == 'r' and tonumber(above) > s.token then draw(1, tonumber(above)) end
    e.first = s.token
  end
  if had == 0 then e.under = e.first end
end

-- free returns how many units an entry can have within the limit of its place.
local function free(e)
  return e.limit - (s.units - e.units)
end

-- ask marks the other sessions that have units as asked by a try, which is the head.
local function ask(first)
  first.pending = 0
  for _, e in ipairs(everyone()) do
    if e ~= first and e.units > 0 then
      first.pending, e.asked = first.pending + 1, first.order
      mark(e)
    end
  end
end

-- answered counts the answer of a session to the try that asked it.
local function answered(me)
  local first = head()
  if first and first.order == me.asked and first.pending > 0 then
    first.pending = first.pending - 1
    mark(first)
  end
  me.asked = 0
end

-- over reports whether the head, which does not fit, is a try to refuse: either all sessions that were asked have answered,
-- or the caller has answered and keeps more units than the try leaves to all others.
local function over(first, me)
  if first.pending < 0 then return false end
  return first.pending == 0 or me and me ~= first and me.asked ~= first.order and me.units > first.limit - first.least
end

-- grant gives the head, which fits, what it wants, and takes its place away. While others wait, the head of a semaphore
-- gets only the least that it needs. If the head is the caller, me, it gets a full lease, else its grant TTL.
local function grant(first, me, lease)
  local n, least, tokens, above = math.min(first.want, free(first)), first.least, first.tokens, first.seen
  local us = first == me and lease or tonumber(first.grant) * 1000
  vacate(first)
  local behind = head()
  if s.kind == 'p' and behind then n = least end
  give(first, math.max(n, first.units), tokens, above)
  prolong(first, us)
end

-- serve grants one head after another while they fit, and refuses tries that are over. It returns the entries that it has
-- granted or refused, except me, and the head that is left.
local function serve(me, lease)
  local news, first = {}, head()
  while first do
    if first.least <= free(first) and not beyond(first.tokens, first.seen) then
      grant(first, me, lease)
    elseif over(first, me) then
      leave(first)
    else
      break
    end
    if first ~= me then news[#news + 1] = first end
    first = head()
  end
  return news, first
end

-- trying returns the order of the head if it is a try, else 0.
local function trying(first)
  return first and first.pending >= 0 and first.order or 0
end

-- allowance returns how many units each session but the head may keep so that the head fits. A semaphore's head that has
-- waited for longer than the GRACE gets the units that fall free first.
local function allowance(first)
  local others = first and s.holders - (first.units > 0 and 1 or 0) or 0
  if others == 0 then return ALL end
  if s.kind == 'p' and now - first.since > GRACE then return 0 end
  return math.max(0, math.floor((first.limit - first.least) / others))
end

-- many runs a command on a key with more arguments than Lua can hand over at once. Fields and their values stay together.
local function many(command, arguments)
  for i = 1, #arguments, 4000 do
    redis.call(command, key, unpack(arguments, i, math.min(i + 3999, #arguments)))
  end
end

local function summary(soonest, first)
  return string.format('%s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f', s.kind, s.token, s.units, s.holders, s.sessions, soonest,
    first, s.last, s.told)
end

-- shorter returns for how many ms to keep a record whose TTL is longer than what this run has changed needs. That is the
-- TTL, unless the name has fallen idle and would be kept for much longer than its entries need.
local function shorter(ttl, needs)
  if s.sessions > 0 or ttl <= needs + 5000 then return ttl end
  for _, e in ipairs(everyone()) do needs = math.max(needs, math.ceil((e.memory - now) / 1000)) end
  return math.min(ttl, needs)
end

-- save writes what has changed, and keeps the record for so many seconds at least. If the key exists, the first command is
-- one that a full server allows: it then allows the next commands too, and what is kept or given back needs no memory. What is
-- too much for one command is written under a summary that makes the next run count anew, with the queue from where it began. A
-- run may stop in between: so an entry that goes is written off first, and a place is written before the entry that names it.
-- Redis 6.2 has no command that makes a hash with an expiry: a new record that is left without one gets it from the next run that
-- gives out or renews units.
local function save(seconds)
  local lasts = now + tonumber(seconds) * 1000000 + math.max(0, math.min(s.token - now, FARTHEST))
  local changes = {}
  for _, e in ipairs(dirty) do
    lasts = math.max(lasts, e.till, e.memory, e.order > 0 and e.deadline + tonumber(e.grant) * 1000 or 0)
    if places[e.order] then changes[#changes + 1], changes[#changes + 2] = '#' .. text(e.order), e.session end
    changes[#changes + 1], changes[#changes + 2] = e.session, write(e)
  end
  changes[#changes + 1], changes[#changes + 2] = '=', summary(s.soonest, s.first)
  if s.replaces then redis.call('DEL', key) end
  local ttl = redis.call('PTTL', key)
  local keep = math.ceil((lasts - now) / 1000)
  if ttl > keep then keep = shorter(ttl, keep) end
  keep = text(keep)
  if ttl > 0 then redis.call('PEXPIRE', key, keep) end
  if #changes > 4000 then redis.call('HSET', key, '=', summary(0, s.began)) end
  many('HSET', changes)
  if ttl <= 0 then redis.call('PEXPIRE', key, keep) end
  many('HDEL', gone)
end

-- heard notes what sessions learn in this run about how many units they may keep. It reports whether all others must be
-- told. That is so if they may keep fewer units than some of them believe; if they may keep any number again, because the
-- last session that waited has left or asks for less, which it has; or if a session that has units is no longer the head.
local function heard(most, listeners)
  local all = most < s.told or most < ALL and lapsed or most == ALL and left and s.told < ALL
  if all or most == ALL then
    s.told = most
  elseif listeners then
    s.told = math.max(s.told, most)
  end
  return all
end

-- announce prepares the messages of a run, and returns how many units each session but the head may keep, and a function
-- that sends them: to the sessions that were granted or refused, and, if they must know, to those that have more
-- units than they may keep, or were asked by a try, which a grant does not name. They must know of a new try (asks), and are
-- told again in a copy of the head's request (beat). The caller learns the same from its reply. While the head is a try, all
-- x messages name it, so that no session takes it for one that waits.
local function announce(me, news, first, beat, asks)
  local most, informed = allowance(first), {}
  for _, e in ipairs(news) do informed[e] = true end
  if me then informed[me] = true end
  local all = heard(most, beat or asks or news[1] or me and me.units > 0) or beat or asks
  return most, function()
    for _, e in ipairs(news) do
      tell(channel, e.session, hold, string.format('h %s %.0f %.0f %.0f %.0f %.0f %.0f ', e.epoch, e.units, e.first,
        s.kind == 'r' and e.units == ALL and s.token or e.first, most, e.units > 0 and e.till or now, now) .. hold)
    end
    if not all then return end
    local try = trying(first)
    for _, e in ipairs(everyone()) do
      local needs = try > 0 and e.asked == try or not informed[e] and (not first or e.units > most)
      if e ~= first and e ~= me and e.units > 0 and needs then
        tell(channel, e.session, hold, 'x ' .. text(most) .. ' ' .. text(try) .. ' ' .. hold)
      end
    end
  end
end
