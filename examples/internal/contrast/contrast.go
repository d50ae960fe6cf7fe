// Package contrast tests whether the colours of a style sheet have enough contrast.
package contrast

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

// The contrast that WCAG 2 (AA) asks for.
const (
	Text = 4.5
	Sign = 3
)

// Check tests the least contrast of pairs of colours, ink and ground, in light and dark mode. Colours are custom properties,
// defined before the first rule for all elements. The colours for dark mode are in a media query after the others. If a colour
// is missing there, dark mode has the colour of light mode.
func Check(t *testing.T, css string, want float64, pairs ...[2]string) {
	t.Helper()
	light, rest, ok := strings.Cut(css, "@media (prefers-color-scheme: dark)")
	require.True(t, ok)
	dark, _, _ := strings.Cut(rest, "* {")
	colors := map[string]color.RGBA{}
	for scheme, text := range []string{light, dark} {
		for _, match := range regexp.MustCompile(`--([\w-]+): #([0-9a-f]{3,6})`).FindAllStringSubmatch(text, -1) {
			colors[match[1]] = parse(t, match[2])
		}
		for _, pair := range pairs {
			assert.Contains(t, colors, pair[0])
			assert.Contains(t, colors, pair[1])
			assert.GreaterOrEqual(t, ratio(colors[pair[0]], colors[pair[1]]), want,
				"%s on %s, %s", pair[0], pair[1], []string{"light", "dark"}[scheme])
		}
	}
}

// parse reads a colour, rgb or rrggbb.
func parse(t *testing.T, hex string) color.RGBA {
	t.Helper()
	if len(hex) == 3 {
		hex = strings.Repeat(hex[:1], 2) + strings.Repeat(hex[1:2], 2) + strings.Repeat(hex[2:], 2)
	}
	n, err := strconv.ParseUint(hex, 16, 24)
	require.NoError(t, err)
	return color.RGBA{R: uint8(n >> 16), G: uint8(n >> 8), B: uint8(n), A: 255}
}

func ratio(a, b color.RGBA) float64 {
	lighter, darker := luminance(a), luminance(b)
	if lighter < darker {
		lighter, darker = darker, lighter
	}
	return (lighter + .05) / (darker + .05)
}

func luminance(c color.RGBA) float64 {
	return .2126*linear(c.R) + .7152*linear(c.G) + .0722*linear(c.B)
}

// linear returns the amount of light of a channel's value in sRGB.
func linear(channel uint8) float64 {
	v := float64(channel) / 255
	if v <= .04045 {
		return v / 12.92
	}
	return math.Pow((v+.055)/1.055, 2.4)
}
