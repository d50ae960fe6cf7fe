package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/examples/internal/contrast"
)

func TestTextIsReadableInLightAndDarkMode(t *testing.T) {
	css, err := web.ReadFile("web/style.css")
	require.NoError(t, err)
	contrast.Check(t, string(css), contrast.Text,
		[2]string{"ink", "ground"}, [2]string{"ink", "card"}, [2]string{"ink", "free"}, [2]string{"ink", "alarm-ground"},
		[2]string{"quiet", "ground"}, [2]string{"quiet", "card"}, [2]string{"accent", "card"}, [2]string{"accent", "alarm-ground"},
		[2]string{"on-accent", "accent"}, [2]string{"alarm", "ground"}, [2]string{"alarm", "alarm-ground"}, [2]string{"free-ink", "free"},
		[2]string{"mine-ink", "mine"}, [2]string{"held-ink", "held"}, [2]string{"bought-ink", "bought"},
	)
	contrast.Check(t, string(css), contrast.Sign,
		[2]string{"sold-ink", "sold"}, [2]string{"free-line", "card"},
	)
}
