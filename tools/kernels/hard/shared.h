#pragma once

// Pair is in a header that two sources include.
struct Pair { int first; double second; };
