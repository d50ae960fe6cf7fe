// Package cookbook has the recipes of docs/cookbook.md, one in each file. They are there to be read and copied, not to
// be imported; the tests show that each does what it says.
package cookbook
