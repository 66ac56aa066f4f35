-- The changes of one key in their order, for reads of the past. By the hash of the key: an entry stays small however
-- long the key is, and the range expectations of commit_group keep to the primary key, which is right for them.
CREATE INDEX changes_of_key ON changes ((md5(key) COLLATE "C"), revision);
