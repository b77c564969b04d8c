"""Weight files on disk, and getting them there: reading, unpacking, fetching and caching. Owns no model family."""
