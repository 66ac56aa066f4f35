"""Keys as etcd has them: what is asked, told and watched. Nothing here does I/O."""
