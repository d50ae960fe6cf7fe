//go:build mutants

package explore

import (
	"strings"

	"github.com/relock-go/relock/internal/mutant"
)

// mutants are faults in the scripts: what is left out or put wrong. Package mutant says how to have one: explore/<name>.
// MUTANTS lists them, and those of package redisbackend that a world finds too.
var mutants = map[string]struct{ right, wrong string }{
	"tombepoch":       {"owner == session and epoch <= tonumber(upto)", "owner == session and epoch < tonumber(upto)"},
	"tombsaved":       {"rec.keep, dirty = longer(rec.keep, ARGV[6]), true", "rec.keep = longer(rec.keep, ARGV[6])"},
	"withdrawepoch":   {"if raw and tonumber(string.match(raw, '^%d+')) <= epoch then\n    code = WITHDRAWN", "if raw then\n    code = WITHDRAWN"},
	"takeoverlease":   {"if not flag('k') then", "if false then"},
	"grantedplace":    {"redis.call('LPOP', queue)\n  redis.call('HDEL', waiters, w.session)\n  issue", "redis.call('LPOP', queue)\n  issue"},
	"blocksize":       {"rec.last = math.max(rec.first, math.min(rec.first + tokens - 1, now + HORIZON))", "rec.last = rec.first"},
	"usedtail":        {"rec.last, dirty = used, true", "rec.last, dirty = used - 1, true"},
	"grantlease":      {"redis.call('PEXPIRE', hold, w.grant)", ""},
	"yieldunasked":    {"local next = flag('y') and waiting(", "local next = waiting("},
	"renewepoch":      {"rec.session ~= session or tonumber(rec.epoch) ~= tonumber(epoch) then return 0", "rec.session ~= session then return 0"},
	"reenterepoch":    {"rec.session ~= session or tonumber(rec.epoch) ~= epoch then return {GONE, now, 0}", "rec.session ~= session then return {GONE, now, 0}"},
	"lowerepoch":      {"if epoch < last or (epoch == last and not mine) then", "if epoch == last and not mine then"},
	"everybodybarges": {"next.session ~= session and not flag('b')", "next.session ~= session and false"},
	"deafbeat":        {"  redis.call('HSET', KEYS[4], session, ARGV[2]", "  if raw then return true end\n  redis.call('HSET', KEYS[4], session, ARGV[2]"},
	"deadfirst":       {"redis.call('LPOP', queue)\n    redis.call('HDEL', waiters, session)\n  end\nend", "return nil\n  end\nend"},
	"signaltwice":     {"if op <= tonumber(rec.op) then return {done(), now} end", ""},
	"awaitepoch":      {"rec.session ~= session or tonumber(rec.epoch) ~= epoch then\n  if redis", "rec.session ~= session then\n  if redis"},
	"signalplace":     {"and redis.call('HEXISTS', k[4], session) == 0 then", "and false then"},
	"norecall":        {"'(' .. text(now)", "'(0'"},
	"latesignal":      {"elseif redis.call('ZSCORE', KEYS[2], member) then", "elseif false then"},
	"signallast":      {"redis.call('ZRANGE', k[5], i, i)[1]", "redis.call('ZRANGE', k[5], -1 - i, -1 - i)[1]"},
	"awaitgrant":      {"if next then grant(KEYS[1], KEYS[2], KEYS[3], KEYS[4], rec, now, next, ARGV[9]) end", ""},
	"awaittomb":       {"rec.keep = longer(rec.keep, ARGV[10])\n  save(KEYS[2], rec, now)", "rec.tombs = ''"},
}

// The one that is asked for is put into every script that it fits.
func init() {
	unhurried = true
	if m, ok := mutants[mutant.Of("explore")]; ok {
		mutate = func(text string) string { return strings.ReplaceAll(text, m.right, m.wrong) }
		mark = m.right
	}
}
