package cookbook

import (
	"os"
	"testing"

	"github.com/relock-go/relock/internal/testsize"
)

func TestMain(m *testing.M) {
	testsize.Parallel(8)
	testsize.CollectLess()
	os.Exit(m.Run())
}
