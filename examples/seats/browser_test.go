//go:build browser

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// screenshots is the folder into which TestScreenshots puts the pictures of the README.
var screenshots = flag.String("screenshots", "", "`folder` to put pictures of the page into")

// browser starts a Chromium without a screen. If there is none, the test is skipped, or fails where all tests must run.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		path, err = exec.LookPath("chromium-browser") // on some systems it has this name
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("there is no chromium")
		}
		t.Skip("there is no chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(eventually))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(t.Logf))
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	return ctx
}

// A window shows the page.
type window struct {
	t   *testing.T
	ctx context.Context
}

// newVisitor opens the page at a server as a new visitor, who has no cookies.
func newVisitor(t *testing.T, browser context.Context, url string) *window {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	return newWindow(t, ctx, url)
}

// another opens another window of the same visitor.
func (w *window) another(url string) *window {
	w.t.Helper()
	ctx, cancel := chromedp.NewContext(w.ctx)
	w.t.Cleanup(cancel)
	return newWindow(w.t, ctx, url)
}

func newWindow(t *testing.T, ctx context.Context, url string) *window {
	t.Helper()
	w := &window{t: t, ctx: ctx}
	require.NoError(t, chromedp.Do(ctx, beside))
	w.resizes(1120, 760)
	w.visit(url)
	return w
}

// beside adds to each page what a test needs on a busy machine. The page repeats a request for as long as Redis does not answer
// the server in time, as the answer asks it to do. The page also keeps everything that it says and shows, because news of the
// hall may replace it, and a hold may end, before the test looks.
func beside(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
	_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: `{
			const once = window.fetch;
			window.fetch = async (...request) => {
				for (;;) {
					const answer = await once(...request);
					if (answer.status !== 503) return answer;
					await new Promise((resolve) => setTimeout(resolve, 100));
				}
			};
			window.said = [];
			window.held = new Set();
			addEventListener("DOMContentLoaded", () => {
				new MutationObserver(() => {
					for (const seat of document.querySelectorAll('[data-state="mine"]:not([data-pending])')) window.held.add(seat.id);
				}).observe(document.body, { subtree: true, childList: true, attributes: true });
				for (const message of document.querySelectorAll(".message")) {
					new MutationObserver(() => window.said.push(message.textContent)).observe(message, { childList: true });
				}
			});
		}`})
	return chromedp.Void{}, err
}

func (w *window) visit(url string) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.Navigate(url+"/")))
	w.waits(`"live" in document.body.dataset`)
}

func (w *window) resizes(width, height int64, options ...chromedp.EmulateViewportOption) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.EmulateViewport(width, height, options...)))
}

// waits until an expression is true on the page.
func (w *window) waits(expression string) {
	w.t.Helper()
	_, err := chromedp.Run(w.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(eventually)))
	if err != nil {
		state, _ := chromedp.Run(w.ctx, chromedp.Evaluate[string](`document.body.innerText`))
		require.NoError(w.t, err, "%s\n%s", expression, state)
	}
}

// runs runs a script on the page.
func (w *window) runs(script string) {
	w.t.Helper()
	_, err := chromedp.Run(w.ctx, chromedp.Evaluate[any](script+"; null"))
	require.NoError(w.t, err)
}

// sees waits until a seat looks as it should.
func (w *window) sees(s seat, state string) {
	w.t.Helper()
	w.waits(fmt.Sprintf(`document.getElementById(%q).dataset.state === %q`, string(s), state))
}

// reads waits until the message has this text, or has had it since the last call of reads.
func (w *window) reads(text string) {
	w.t.Helper()
	w.waits(fmt.Sprintf(`window.said.splice(0, 1 + window.said.findIndex((text) => text.includes(%q))).length > 0`, text))
}

// arrives waits until a link has led to a server's page.
func (w *window) arrives(url string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { // not by waits: it fails when the page is left
		at, err := chromedp.Run(w.ctx, chromedp.Evaluate[string](`location.origin`))
		return err == nil && at == url
	}, eventually, 50*time.Millisecond)
	w.waits(`document.body && "live" in document.body.dataset`)
}

func (w *window) clicks(selector string) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.Click(chromedp.CSS(selector))))
}

// picks clicks on a seat, and waits until it is held for the visitor.
func (w *window) picks(s seat) {
	w.t.Helper()
	w.clicks("#" + string(s))
	w.holds(s)
}

// holds waits until a seat is held for the visitor and the server has said so. It is enough if that was so at any time since
// the page was loaded.
func (w *window) holds(s seat) {
	w.t.Helper()
	w.waits(fmt.Sprintf(`window.held.has(%q)`, string(s)))
}

func (w *window) types(keys string) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.KeyEvent(keys)))
}

// openCinema starts two real servers.
func openCinema(t *testing.T, hold, payment time.Duration) *cinema {
	t.Helper()
	c, err := open(t.Context(), options{servers: 2, hold: hold, payment: payment}, t.Output())
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c
}

func TestInTheBrowserOneOfThreeGetsA05(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, time.Hour, 0)
	var windows []*window
	for i := range 3 {
		windows = append(windows, newVisitor(t, b, c.servers[i%2].address))
	}
	for _, w := range windows {
		require.NoError(t, chromedp.Do(w.ctx, chromedp.Evaluate[chromedp.Void](`{
			setTimeout(() => document.getElementById("A05").click());
		}`)))
	}
	// The messages count, since for a moment a page may show a hold that the server could not confirm and gave back.
	said := func(pattern string) string {
		return fmt.Sprintf(`window.said.some((text) => /%s/.test(text))`, pattern)
	}
	const won, lost = `A5 is held for you\.`, `Another visitor was faster: A5 is held|held by another visitor`
	got := 0
	for _, w := range windows {
		w.waits(said(won + "|" + lost))
		winner, err := chromedp.Run(w.ctx, chromedp.Evaluate[bool](said(won)))
		require.NoError(t, err)
		if winner {
			got++
			w.sees("A05", "mine")
			continue
		}
		w.sees("A05", "held")
	}
	assert.Equal(t, 1, got)
}

func TestInTheBrowserAHoldEnds(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, 8*time.Second, 0)
	ann, bob := newVisitor(t, b, c.servers[0].address), newVisitor(t, b, c.servers[1].address)
	// These are the states that bob's page shows, one after the other. The hold may be over before the test looks for it.
	require.NoError(t, chromedp.Do(bob.ctx, chromedp.Evaluate[chromedp.Void](`{
		const seat = document.getElementById("A05");
		window.shown = [];
		new MutationObserver(() => window.shown.push(seat.dataset.state)).observe(seat, { attributeFilter: ["data-state"] });
	}`)))
	ann.picks("A05")
	ann.reads("Your hold of A5 has ended.")
	ann.sees("A05", "free")
	ann.waits(`document.querySelector("li[data-seat=A05].ended .again:not([hidden])") !== null`)
	bob.waits(`window.shown.join() === "held,free"`)
	bob.picks("A05")
}

// The visitor uses only the keyboard, picks at one server, and pays at the other.
func TestInTheBrowserPayingAtTheOtherServer(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, time.Hour, 300*time.Millisecond)
	ann, bob := newVisitor(t, b, c.servers[0].address), newVisitor(t, b, c.servers[1].address)
	require.NoError(t, chromedp.Do(ann.ctx, chromedp.Evaluate[chromedp.Void](`document.getElementById("A01").focus()`)))
	ann.types(kb.ArrowDown)
	ann.types(kb.End)
	ann.types(kb.ArrowLeft)
	ann.types(kb.ArrowRight)
	ann.types(kb.ArrowRight) // there is nothing further to the right
	ann.waits(`document.activeElement.id === "B10" && document.activeElement.tabIndex === 0`)
	ann.waits(`document.querySelectorAll("#seats button[tabindex='0']").length === 1`)
	ann.types(kb.Enter)
	ann.holds("B10")
	ann.waits(`document.activeElement.getAttribute("aria-label") === "Row B, seat 10, held for you"`)
	bob.sees("B10", "held")
	bob.waits(`document.getElementById("B10").getAttribute("aria-disabled") === "true"`)
	bob.clicks("#B10")
	bob.reads("B10 is held by another visitor.")

	there := ann.another(c.servers[1].address)
	there.sees("B10", "mine")
	there.clicks("#B10") // this moves the focus to the seat's button
	there.waits(`document.activeElement.matches("li[data-seat=B10] .pay")`)
	there.types(kb.Enter)
	there.reads("B10 is yours.")
	there.waits(`document.activeElement.id === "B10"`) // the button is gone, and the focus is not lost
	for _, w := range []*window{ann, there} {
		w.sees("B10", "bought")
	}
	bob.sees("B10", "sold")
}

func TestInTheBrowserLettingGo(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, time.Hour, 0)
	ann := newVisitor(t, b, c.servers[0].address)
	bob, there := newVisitor(t, b, c.servers[1].address), ann.another(c.servers[1].address)
	ann.picks("C03")
	bob.sees("C03", "held")
	there.sees("C03", "mine")
	there.clicks("li[data-seat=C03] .release")
	there.reads("You let C3 go.")
	there.waits(`document.activeElement.id === "C03"`)
	for _, w := range []*window{ann, bob, there} {
		w.sees("C03", "free")
	}
	bob.picks("C03")
	ann.sees("C03", "held")
}

// While the servers cannot read the hall, events show the hall as it was. An event that comes after the answer changes nothing:
// when the hall can be read again, the seat has the focus, and no hold has ended by itself.
func TestInTheBrowserAStaleEventDoesNotBringBackASeatThatWasLetGo(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, time.Hour, 0)
	ann := newVisitor(t, b, c.servers[0].address)
	ann.picks("C03")
	ann.runs(`clearTimeout(retry); events.onmessage = events.onerror = null; events.close()`) // the test makes the events
	ann.clicks("li[data-seat=C03] .release")
	ann.reads("You let C3 go.")
	ann.waits(`asked.size === 0`)
	ann.runs(`show({stale: true, seats: {C03: {state: "mine", left: mine.get("C03").end - performance.now()}}})`)
	ann.runs(`show({seats: {}})`)
	ann.waits(`document.activeElement.id === "C03"`)
	ann.waits(`document.querySelector("li[data-seat=C03]") === null`)
	ann.waits(`news.textContent === ""`)
}

func TestInTheBrowserGoingOnAfterAServerWasKilled(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, 10*time.Minute, 0)
	ann, bob := newVisitor(t, b, c.servers[0].address), newVisitor(t, b, c.servers[1].address)
	ann.picks("A05")
	c.servers[0].kill()
	ann.waits(`!document.getElementById("banner").hidden`)
	bob.sees("A05", "held")
	ann.clicks("li[data-seat=A05] .pay")
	ann.reads("No answer came for A5. What you hold stays yours: server 2 can go on with it.")
	ann.clicks("#banner a")
	ann.arrives(c.servers[1].address)
	ann.sees("A05", "mine")
	bob.clicks("#A05")
	bob.reads("A5 is held by another visitor.")
	ann.clicks("li[data-seat=A05] .pay")
	ann.sees("A05", "bought")
	bob.sees("A05", "sold")
}

// Nothing is wider than a small phone, and everything that is touched is large enough: WCAG 2 asks for 24 px (2.5.8).
func TestInTheBrowserOnAPhone(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, 10*time.Minute, 0)
	ann := newVisitor(t, b, c.servers[0].address)
	ann.picks("C03")
	ann.picks("C04")
	for _, width := range []int64{320, 390} {
		ann.resizes(width, 640, chromedp.EmulateMobile)
		ann.visit(c.servers[0].address)
		ann.sees("C04", "mine")
		ann.waits(fmt.Sprintf(`document.documentElement.scrollWidth <= %d`, width))
		small, err := chromedp.Run(ann.ctx, chromedp.Evaluate[[]string](`
			[...document.querySelectorAll("button, a")].filter((e) => e.checkVisibility()).flatMap((e) => {
				const { width, height } = e.getBoundingClientRect();
				return width < 24 || height < 24 ? [e.id + e.textContent + ": " + width + " × " + height] : [];
			})`))
		require.NoError(t, err)
		assert.Empty(t, small, "too small for fingers at a width of %d", width)
		inside, err := chromedp.Run(ann.ctx, chromedp.Evaluate[bool](`
			[...document.querySelectorAll(".seat")].every((e) => {
				const seat = e.getBoundingClientRect(), hall = e.closest(".hall").getBoundingClientRect();
				return hall.left <= seat.left && seat.right <= hall.right;
			})`))
		require.NoError(t, err)
		assert.True(t, inside, "seats are cut off at a width of %d", width)
	}
}

// The locks are shown on request, and follow the changes of the hall, even on a phone.
func TestInTheBrowserTheLocksBehindTheSeats(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, 10*time.Minute, 0)
	ann, there := newVisitor(t, b, c.servers[0].address), newVisitor(t, b, c.servers[1].address)
	ann.picks("C03")
	ann.resizes(320, 640, chromedp.EmulateMobile)
	ann.waits(`document.getElementById("locks").open === false`)
	ann.clicks("#locks summary")
	const row = `[...document.querySelectorAll("#locks tbody tr")].map((e) => [...e.cells].slice(0, 3).map((cell) => cell.textContent).join(" ")).join(", ")`
	ann.waits(fmt.Sprintf(`/^seats:C03 \d+ server-1$/.test(%s)`, row))
	ann.waits(`/^Server 1 has sent Redis \d+ commands? for its visitors, and got [1-9]\d* locks? by them\.$/.test(document.querySelector("#locks .cost").textContent)`)
	ann.waits(`document.documentElement.scrollWidth <= 320`)
	there.picks("C04")
	ann.waits(fmt.Sprintf(`/^seats:C03 \d+ server-1, seats:C04 \d+ server-2$/.test(%s)`, row))
}

// If people choose all colours themselves, the states of seats differ by more than the colours of the page.
func TestInTheBrowserWithForcedColors(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, 10*time.Minute, 0)
	ann, bob := newVisitor(t, b, c.servers[0].address), newVisitor(t, b, c.servers[0].address)
	bob.picks("A01")
	bob.picks("A02")
	bob.clicks("li[data-seat=A02] .pay")
	bob.sees("A02", "bought")
	ann.picks("A03")
	ann.picks("A04")
	ann.clicks("li[data-seat=A04] .pay")
	require.NoError(t, chromedp.Do(ann.ctx, media("forced-colors", "active")))
	looks := map[string]seat{}
	for s, state := range map[seat]string{"A01": "held", "A02": "sold", "A03": "mine", "A04": "bought", "A05": "free"} {
		ann.sees(s, state)
		look, err := chromedp.Run(ann.ctx, chromedp.Evaluate[string](fmt.Sprintf(`{
			const seat = getComputedStyle(document.getElementById(%q));
			const sign = getComputedStyle(document.getElementById(%q), "::after").content;
			matchMedia("(forced-colors: active)").matches && [seat.borderTopStyle, seat.borderTopWidth, sign].join();
		}`, string(s), string(s))))
		require.NoError(t, err)
		assert.Empty(t, looks[look], "%s looks like %s without colours: %s", s, looks[look], look)
		looks[look] = s
	}
}

func TestInTheBrowserPayingForAll(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, time.Hour, 300*time.Millisecond)
	ann, bob := newVisitor(t, b, c.servers[0].address), newVisitor(t, b, c.servers[1].address)
	ann.waits(`document.getElementById("pay-all").hidden`)
	ann.picks("C03")
	there := ann.another(c.servers[1].address)
	there.picks("C04")
	ann.sees("C04", "mine")
	ann.waits(`document.getElementById("pay-all").textContent === "Pay for all 2 seats, €24"`)
	ann.clicks("#pay-all")
	ann.reads("C3 and C4 are yours. You paid €24. Your ticket code is ")
	for _, w := range []*window{ann, there} {
		w.sees("C03", "bought")
		w.sees("C04", "bought")
		w.waits(`/^Ticket code [A-Z2-7]{4}-[A-Z2-7]{4} for C3 and C4\. /.test(document.getElementById("code").innerText)`)
	}
	bob.sees("C03", "sold")
	bob.sees("C04", "sold")
}

// The answer to a payment stays on the page, whatever happens next.
func TestInTheBrowserNewsDoesNotReplaceTheAnswer(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, 20*time.Second, 0)
	ann := newVisitor(t, b, c.servers[0].address)
	ann.picks("C03")
	ann.picks("C04")
	ann.clicks("li[data-seat=C04] .pay")
	ann.reads("C4 is yours. You paid €12.")
	ann.reads("Your hold of C3 has ended.")
	ann.waits(`document.getElementById("message").textContent.startsWith("C4 is yours.")`)
}

func TestInTheBrowserPickingAgain(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, 20*time.Second, 0)
	ann, bob := newVisitor(t, b, c.servers[0].address), newVisitor(t, b, c.servers[1].address)
	ann.picks("C03")
	ann.picks("C04")
	ann.waits(`document.querySelectorAll("li.ended").length === 2`)
	bob.sees("C04", "free")
	bob.picks("C04")
	ann.sees("C04", "held")
	ann.waits(`document.querySelector("li[data-seat=C04].ended .again").hidden`) // bob has the seat now
	ann.clicks("li[data-seat=C03] .again")
	ann.reads("C3 is held for you.")
	ann.clicks("li[data-seat=C04] .release") // this removes the entry
	ann.waits(`document.querySelector("li[data-seat=C04]") === null`)
}

func TestInTheBrowserThePagesOfBothServersAreAlike(t *testing.T) {
	t.Parallel()
	b := browser(t)
	c := openCinema(t, time.Hour, 0)
	for _, p := range c.servers {
		w := newVisitor(t, b, p.address)
		w.waits(`document.querySelector(".servers").innerText.trim().split(/\s*\n\s*/).join() === "Server 1,Server 2"`)
		w.waits(fmt.Sprintf(`document.querySelector(".servers [aria-current]").textContent === "Server %d"`, p.number))
		w.waits(`document.querySelector(".when time").dateTime.endsWith("T20:15")`)
		w.waits(`document.getElementById("H01").getAttribute("aria-label") === "Row H, seat 1, wheelchair place, free"`)
		w.waits(`document.querySelectorAll("#seats .chair").length === 4`)
	}
}

// media makes a page see a feature of the user's settings.
func media(name, value string) func(context.Context, *chromedp.Target) (chromedp.Void, error) {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: name, Value: value}},
		})
		return chromedp.Void{}, err
	}
}

// TestScreenshots makes the pictures of the README: go test -tags browser ./examples/seats -run Screenshots -screenshots
// "$PWD/docs/img"
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("-screenshots is not set")
	}
	b := browser(t)
	c, err := open(t.Context(), options{
		servers: 2, hold: 10 * time.Minute, show: time.Date(2026, time.November, 28, 20, 15, 0, 0, time.Local),
	}, t.Output())
	require.NoError(t, err)
	t.Cleanup(c.close)
	urls := [2]string{c.servers[0].address, c.servers[1].address}
	for _, taken := range []struct {
		what  string
		seats []seat
	}{
		{"pay", []seat{"D04", "D05", "D06", "D07"}},
		{"pay", []seat{"E05", "E06", "F02", "F03"}},
		{"pay", []seat{"G08", "G09", "G10", "C08"}},
		{"hold", []seat{"E07", "E08"}},
		{"hold", []seat{"B03", "B04", "F07"}},
	} {
		g := enters(t, urls)
		for _, s := range taken.seats {
			g.gets(200, 1, "hold", s)
			if taken.what == "pay" {
				g.gets(200, 2, "pay", s)
			}
		}
	}
	ann := newVisitor(t, b, urls[0])
	ann.picks("C03")
	ann.picks("C04")
	ann.clicks("#pay-all")
	ann.sees("C04", "bought")
	ann.picks("C05")
	for _, picture := range []struct {
		name, scheme  string
		width, height int64
		scale         float64
	}{
		{"seats-light", "light", 1120, 760, 1},
		{"seats-dark", "dark", 1120, 760, 1},
		{"seats-phone", "light", 390, 780, 1.4},
	} {
		ann.resizes(picture.width, picture.height, chromedp.EmulateScale(picture.scale))
		require.NoError(t, chromedp.Do(ann.ctx, media("prefers-color-scheme", picture.scheme)))
		ann.visit(urls[0])
		if picture.name == "seats-light" {
			ann.clicks("#C06")
			ann.reads("C6 is held for you.")
		}
		ann.waits(`document.getAnimations().every((a) => a.playState === "finished")`)
		shot, err := chromedp.Run(ann.ctx, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		decoded, err := png.Decode(bytes.NewReader(shot))
		require.NoError(t, err)
		var small bytes.Buffer
		require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, decoded))
		assert.Less(t, small.Len(), 150_000)
		require.NoError(t, os.WriteFile(filepath.Join(*screenshots, picture.name+".png"), small.Bytes(), 0o644))
	}
}
