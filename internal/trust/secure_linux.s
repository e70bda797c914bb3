// Go takes a function without a body only from a package that has assembly.
