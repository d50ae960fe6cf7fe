package redistest_test

import (
	"os"
	"testing"

	"github.com/relock-go/relock/internal/testsize"
)

func TestMain(m *testing.M) {
	testsize.CollectLess()
	os.Exit(m.Run())
}
