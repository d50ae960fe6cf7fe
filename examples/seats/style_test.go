package main

import (
	"image/color"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is written is readable in light and in dark: the contrast is what WCAG 2 asks for (AA), 4.5 for text and 3 for
// signs.
func TestContrast(t *testing.T) {
	css, err := web.ReadFile("web/style.css")
	require.NoError(t, err)
	light, rest, ok := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	require.True(t, ok)
	dark, _, _ := strings.Cut(rest, "* {")
	colors := map[string]color.RGBA{}
	for scheme, text := range []string{light, dark} { // dark has what is not as in light
		for _, match := range regexp.MustCompile(`--([\w-]+): #([0-9a-f]{3,6})`).FindAllStringSubmatch(text, -1) {
			colors[match[1]] = parseColor(t, match[2])
		}
		for _, pair := range []struct {
			ink, ground string
			want        float64
		}{
			{"ink", "ground", 4.5}, {"ink", "card", 4.5}, {"ink", "free", 4.5}, {"ink", "alarm-ground", 4.5},
			{"quiet", "ground", 4.5}, {"quiet", "card", 4.5}, {"accent", "card", 4.5}, {"accent", "alarm-ground", 4.5},
			{"on-accent", "accent", 4.5}, {"alarm", "ground", 4.5}, {"alarm", "alarm-ground", 4.5},
			{"free-ink", "free", 4.5}, {"mine-ink", "mine", 4.5}, {"held-ink", "held", 4.5}, {"bought-ink", "bought", 4.5},
			{"sold-ink", "sold", 3}, {"free-line", "card", 3},
		} {
			assert.GreaterOrEqual(t, contrast(colors[pair.ink], colors[pair.ground]), pair.want,
				"%s on %s, %s", pair.ink, pair.ground, []string{"light", "dark"}[scheme])
		}
	}
}

// parseColor reads rgb or rrggbb.
func parseColor(t *testing.T, hex string) color.RGBA {
	t.Helper()
	if len(hex) == 3 {
		hex = strings.Repeat(hex[:1], 2) + strings.Repeat(hex[1:2], 2) + strings.Repeat(hex[2:], 2)
	}
	n, err := strconv.ParseUint(hex, 16, 24)
	require.NoError(t, err)
	return color.RGBA{R: uint8(n >> 16), G: uint8(n >> 8), B: uint8(n), A: 255}
}

func contrast(a, b color.RGBA) float64 {
	lighter, darker := luminance(a), luminance(b)
	if lighter < darker {
		lighter, darker = darker, lighter
	}
	return (lighter + .05) / (darker + .05)
}

func luminance(c color.RGBA) float64 {
	return .2126*linear(c.R) + .7152*linear(c.G) + .0722*linear(c.B)
}

// linear is how much light a channel of sRGB is.
func linear(channel uint8) float64 {
	v := float64(channel) / 255
	if v <= .04045 {
		return v / 12.92
	}
	return math.Pow((v+.055)/1.055, 2.4)
}
