//go:build browser

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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

// A window shows the page of a replica.
type window struct {
	t   *testing.T
	ctx context.Context
}

// newWindows opens two replicas, and a window for each.
func newWindows(t *testing.T, opts options) (*cluster, [2]*window) {
	t.Helper()
	b := browser(t)
	c, err := open(t.Context(), opts, t.Output())
	require.NoError(t, err)
	t.Cleanup(c.close)
	var windows [2]*window
	for i, r := range c.replicas {
		ctx, cancel := chromedp.NewContext(b)
		t.Cleanup(cancel)
		w := &window{t: t, ctx: ctx}
		require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(r.address()+"/")))
		w.waits(`"live" in document.body.dataset`)
		windows[i] = w
	}
	return c, windows
}

// waits waits until an expression is true on the page.
func (w *window) waits(expression string) {
	w.t.Helper()
	_, err := chromedp.Run(w.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(eventually)))
	if err != nil {
		state, _ := chromedp.Run(w.ctx, chromedp.Evaluate[string](`document.body.innerText`))
		require.NoError(w.t, err, "%s\n%s", expression, state)
	}
}

// sees waits until a turn's card is in a state.
func (w *window) sees(turn int, state state) {
	w.t.Helper()
	w.waits(fmt.Sprintf(`document.getElementById("turn-%d")?.dataset.state === %q`, turn, state))
}

// adds presses a button of conversation A, and waits until the turn is there.
func (w *window) adds(turn int, button string) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, chromedp.Click(chromedp.CSS("#A button."+button))))
	w.waits(fmt.Sprintf(`document.getElementById("turn-%d") !== null`, turn))
}

// evaluates returns the value of an expression on the page.
func evaluates[T any](w *window, expression string) T {
	w.t.Helper()
	value, err := chromedp.Run(w.ctx, chromedp.Evaluate[T](expression))
	require.NoError(w.t, err)
	return value
}

func TestInTheBrowserTurnsOfAConversationRunOneAtATime(t *testing.T) {
	t.Parallel()
	_, windows := newWindows(t, options{steps: 3, step: 100 * time.Millisecond, lease: time.Minute})
	for _, w := range windows {
		evaluates[any](w, `{
			window.most = 0;
			new MutationObserver(() => {
				window.most = Math.max(window.most, document.querySelectorAll("#A [data-state=running]").length);
			}).observe(document.getElementById("A"), { subtree: true, childList: true, attributes: true });
			null;
		}`)
	}
	for turn := range 4 {
		windows[turn%2].adds(turn+1, "add")
	}
	for _, w := range windows {
		for turn := range 4 {
			w.sees(turn+1, done)
		}
		w.waits(`document.getElementById("turn-4").dataset.steps === "3"`)
		assert.Equal(t, 1, evaluates[int](w, `window.most`))
		w.waits(`[...document.querySelectorAll("#A .turn")].map((e) => e.dataset.replica).join() === "1,2,1,2"`)
	}
}

func TestInTheBrowserANewcomerStopsTheRunningTurn(t *testing.T) {
	t.Parallel()
	_, windows := newWindows(t, options{steps: 1, step: time.Hour, lease: time.Minute})
	windows[0].adds(1, "add")
	windows[0].sees(1, running)
	windows[1].adds(2, "stop")
	for _, w := range windows {
		w.sees(1, stopped)
		w.sees(2, running)
	}
	windows[0].waits(`document.getElementById("news").textContent === "Turn 1 of conversation A stopped, as another has asked."`)
}

func TestInTheBrowserATurnGoesOnAfterItsReplicaWasKilled(t *testing.T) {
	t.Parallel()
	c, windows := newWindows(t, options{steps: 1, step: time.Hour, lease: time.Minute})
	windows[0].adds(1, "add")
	windows[1].sees(1, running)
	token := evaluates[string](windows[1], `document.getElementById("turn-1").dataset.token`)
	require.NoError(t, c.replicas[0].process().Kill())
	for _, w := range windows {
		w.waits(`document.querySelector("#turn-1[data-resumed] .state")?.textContent === "runs, resumed"`)
		assert.Equal(t, token, evaluates[string](w, `document.getElementById("turn-1").dataset.token`), "it was the same hold")
		w.waits(`document.getElementById("away").hidden`)
	}
}

// A replica that is stopped for longer than its lease has lost its turn. It learns of the loss when it runs again.
func TestInTheBrowserALossIsShown(t *testing.T) {
	t.Parallel()
	c, windows := newWindows(t, options{steps: 1, step: time.Hour, lease: 6 * time.Second})
	windows[0].adds(1, "add")
	windows[1].sees(1, running)
	paused := c.replicas[0].process()
	require.NoError(t, paused.Signal(syscall.SIGSTOP))
	windows[1].adds(2, "add")
	windows[1].sees(2, running)
	windows[1].sees(1, lost)
	require.NoError(t, paused.Signal(syscall.SIGCONT))
	windows[0].sees(1, lost)
	for _, w := range windows {
		w.waits(`/^Turn 1 of conversation A lost its hold\./.test(document.getElementById("news").textContent)`)
		w.waits(`document.getElementById("turn-1").dataset.steps === "0"`)
	}
}

// Nothing is wider than a small phone, nothing is cut off or has to be moved sideways, and fingers hit what they aim at: WCAG 2
// asks for 24 px (2.5.8).
func TestInTheBrowserOnAPhone(t *testing.T) {
	t.Parallel()
	_, windows := newWindows(t, options{steps: 1, step: time.Hour, lease: time.Minute})
	w := windows[0]
	require.NoError(t, chromedp.Do(w.ctx, chromedp.EmulateViewport(320, 640, chromedp.EmulateMobile)))
	for turn := range 4 {
		w.adds(turn+1, "add")
	}
	w.waits(`document.documentElement.scrollWidth <= 320`)
	// All that the page can show is measured at once, whatever the turns do meanwhile.
	assert.Empty(t, evaluates[[]string](w, `
		draw(document.getElementById("turn-1"), { number: 1, state: "stopped", begun: 2, steps: 1, token: "1795481376527571" });
		say(news, "Turn 1 of conversation A lost its hold. Nothing more of it is written.", true);
		away.hidden = false;
		[...document.body.querySelectorAll("*")].filter((e) => e.checkVisibility() && e.tagName !== "PROGRESS").flatMap((e) => {
			const { left, right } = e.getBoundingClientRect();
			return left < 0 || right > 320 || e.clientWidth > 0 && e.scrollWidth > e.clientWidth
				? [e.tagName + "." + e.className + ": " + left + " to " + right + ", " + e.scrollWidth + " wide in " + e.clientWidth] : [];
		})`), "cut off at a width of 320")
	assert.Empty(t, evaluates[[]string](w, `
		[...document.querySelectorAll("button, a")].flatMap((e) => {
			const { width, height } = e.getBoundingClientRect();
			return width < 24 || height < 24 ? [e.textContent + ": " + width + " × " + height] : [];
		})`))
}

// If people choose all colours themselves, the states of turns differ by their borders.
func TestInTheBrowserWithForcedColors(t *testing.T) {
	t.Parallel()
	_, windows := newWindows(t, options{steps: 1, step: time.Hour, lease: time.Minute})
	w := windows[0]
	w.adds(1, "add")
	w.sees(1, running)
	require.NoError(t, chromedp.Do(w.ctx, func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}},
		})
		return chromedp.Void{}, err
	}))
	looks := map[string]state{}
	for _, s := range []state{queued, running, done, stopped, lost} {
		look := evaluates[string](w, fmt.Sprintf(`{
			const turn = document.getElementById("turn-1");
			turn.dataset.state = %q;
			const style = getComputedStyle(turn);
			matchMedia("(forced-colors: active)").matches && [style.borderTopStyle, style.borderTopWidth].join();
		}`, s))
		assert.Empty(t, looks[look], "%s looks like %s without colours: %s", s, looks[look], look)
		looks[look] = s
	}
}
