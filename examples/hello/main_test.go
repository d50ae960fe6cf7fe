package main

// The README shows this program.
func Example() {
	main()
	// Output:
	// holds: 1
	// holds: 0 error: <nil>
}
