//go:build mutants

package redisbackend

import (
	"strings"

	"github.com/relock-go/relock/internal/mutant"
)

// mutants are faults in the scripts: what is left out or put wrong. Package mutant says how to have one; MUTANTS lists the
// tests that must notice.
var mutants = map[string]struct{ right, wrong string }{
	"releaseepoch":    {"and (rec.session ~= session or tonumber(rec.epoch) <= epoch)", ""},
	"resendtoken":     {"if mine and epoch == last then", "if false then"},
	"resendlease":     {"if not (flag('f') and rec.state == 'h') then redis.call('PEXPIRE', KEYS[1], lease) end", ""},
	"deadwaiter":      {"if now <= tonumber(deadline) then", "if true then"},
	"takeovertoken":   {"PEXPIRE', KEYS[1], lease) end\n  issue(rec, now, session, ARGV[2], tokens, seen, 'h', keep)", "PEXPIRE', KEYS[1], lease) end\n  rec.epoch = ARGV[2]"},
	"tombstone":       {"if rec.tombs ~= '' and entombed(rec, session, epoch, now) then", "if false then"},
	"notafter":        {"if now > tonumber(ARGV[6]) then", "if tonumber(ARGV[6]) == 0 then"},
	"forgottenwaiter": {"local next = not field and waiting(", "local next = false and waiting("},
	"secondturn":      {"if epoch < last or (epoch == last and not mine) then", "if epoch < last then"},
	"digits":          {"return string.format('%.0f', number)", "return '' .. number"},
	"nul":             {"%.0f %.0f %s %.0f ',\n    w.epoch, rec.first, rec.last, w.grant, now) .. hold)", "%.0f %.0f %s %.0f %s',\n    w.epoch, rec.first, rec.last, w.grant, now, hold))"},
	"renewgone":       {"if not mine or rec.session", "if rec.session"},
	"reenterop":       {"if op <= tonumber(rec.op) then", "if false then"},
	"fixedlease":      {"if not (flag('f') and rec.state == 'h') then", "if true then"},
	"yieldplace":      {"    place()\n    grant(", "    grant("},
	"oldplace":        {"if raw and tonumber(string.match(raw, '^%d+')) > epoch then return false end", ""},
	"lastinfirst":     {"if not raw then\n    redis.call('RPUSH'", "if not raw then\n    redis.call('LPUSH'"},
	"tokenclock":      {"math.max(rec.last + 1, now, seen + 1)", "math.max(rec.last + 1, seen + 1)"},
	"sametoken":       {"math.max(rec.last + 1, now, seen + 1)", "math.max(rec.last, 1)"},
	"retention":       {"if rec.last <= now then return rec.keep end", "do return rec.keep end"},
	"fartoken":        {"if math.max(rec.last, tonumber(seen)) > now + FARTHEST - tokens then", "if false then"},
	"horizon":         {"math.min(rec.first + tokens - 1, now + HORIZON)", "rec.first + tokens - 1"},
	"longretention":   {"math.min(rec.last - now, FARTHEST)", "(rec.last - now)"},
	"shortkeep":       {"if redis.call('PTTL', key) < tonumber(seconds) * 1000 then", "if true then"},
	"publish":         {"redis.pcall('PUBLISH'", "redis.call('PUBLISH'"},
	"onebad":          {"local ok, code = pcall(renew,", "local ok, code = true, renew("},
	"withdrawspends":  {"elseif redis.call('ZSCORE', KEYS[2], member) then", "elseif redis.call('ZREM', KEYS[2], member) == 1 then"},
	"beatspends":      {"redis.call('ZADD', KEYS[6], till, member)\n    else", "redis.call('ZREM', KEYS[6], member)\n    else"},
	"deadsignal":      {"if not deadline or now > tonumber(deadline) then", "if not deadline then"},
	"signalbatch":     {"'0', BATCH - 1", "'0', '-1'"},
	"signalmore":      {"and MORE or DONE", "and DONE or DONE"},
	"signalop":        {"if op <= tonumber(rec.op) then return {done(), now} end", ""},
	"passover":        {"if not listening then return member end", "if true then return member end"},
	"awaittomb":       {"if doubt > 0 then\n  entomb(rec, session, epoch, now + doubt, now)\n  rec.keep", "if false then\n  rec.keep"},
	"awaitagain":      {"if redis.call('ZSCORE', KEYS[6], member) then return {SIGNALLED, now} end", ""},
	"foreign":         {"return foreign(field, ttl) or wait(ttl)", "return wait(ttl)"},
	"restorestale":    {"if epoch < last then return {STALE, now} end\nif field and not mine", "if field and not mine"},
	"restoreheld":     {"if field and not mine then return {HELD, now} end", ""},
	"forcetomb":       {"entomb(rec, rec.session, tonumber(rec.epoch), now + tonumber(ARGV[1]), now)", ""},
	"unheard":         {"recall(KEYS, now, channel, field, ARGV[4] == '1')", ""},
}

// The one that is asked for is put into every script that it fits.
func init() {
	m, ok := mutants[mutant.Of("redisbackend")]
	if !ok {
		return
	}
	found := false
	mutate = func(text string) string {
		found = found || strings.Contains(text, m.right)
		return strings.ReplaceAll(text, m.right, m.wrong)
	}
	loadScripts()
	if loadQuorumScripts(); !found {
		panic("redisbackend: the scripts have changed, the mutant fits none")
	}
}
