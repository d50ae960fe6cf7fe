package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/relock-go/relock/examples/internal/contrast"
)

// The borders that distinguish the states of turns can be seen, too.
func TestTextIsReadableInLightAndDarkMode(t *testing.T) {
	css, err := web.ReadFile("web/style.css")
	require.NoError(t, err)
	contrast.Check(t, string(css), contrast.Text,
		[2]string{"ink", "ground"}, [2]string{"ink", "card"}, [2]string{"quiet", "card"}, [2]string{"accent", "ground"},
		[2]string{"accent", "card"}, [2]string{"on-accent", "accent"}, [2]string{"running-ink", "running"}, [2]string{"done-ink", "done"},
		[2]string{"ink", "alarm-ground"}, [2]string{"alarm", "alarm-ground"},
	)
	contrast.Check(t, string(css), contrast.Sign,
		[2]string{"line", "card"}, [2]string{"line", "ground"}, [2]string{"ink", "running"}, [2]string{"alarm", "card"},
		[2]string{"accent", "running"}, [2]string{"accent", "done"}, [2]string{"accent", "alarm-ground"},
	)
}
